-- The table `crypto`: hashes, base64, random texts.  The worker computes them while the script waits, so they are no ops and
-- work in callbacks; only a text longer than PIECE is an op, since nothing could end the run meanwhile.

local runtime, internals = ...
local raw, host = runtime.raw, internals.host
local sub, tostring, type = raw.string.sub, runtime.use("values").tostring, raw.type
local floor, math_type = raw.math.floor, raw.math.type

local PIECE = 1 << 20               -- bytes
local TRUE, FALSE = 1, 2            -- results that are not texts (lua/worker/crypto.py)

local COMPUTE, RANDOM = 7, 9        -- the purposes of calls to the worker
local crypto = {}

local function result_of(purpose, ...)
  local result = host(purpose, ...)
  if result == 0 then               -- there is no room for it
    raw.collectgarbage()
    result = host(purpose, ...)
  end
  if result == 0 then raw.error("not enough memory", 0) end
  return result
end

local function compute(...) return result_of(COMPUTE, ...) end

-- The script has called our caller.
local function text(position, name, value)
  if type(value) == "number" then return tostring(value) end
  if type(value) ~= "string" then runtime.bad_argument(position, "crypto." .. name, "string", value, 4) end
  return value
end

local function of_one_text(name)
  crypto[name] = function(value)
    value = text(1, name, value)
    if #value > PIECE then return runtime.call("_crypto", name, value) end
    return compute(name, value)
  end
end

of_one_text "sha256"
of_one_text "sha512"
of_one_text "sha1"
of_one_text "md5"
of_one_text "base64_encode"

function crypto.hmac_sha256(key, value)
  key, value = text(1, "hmac_sha256", key), text(2, "hmac_sha256", value)
  if #key + #value > PIECE then return runtime.call("_crypto", "hmac_sha256", value, key) end
  return compute("hmac_sha256", key, value)
end

function crypto.base64_decode(value)
  value = text(1, "base64_decode", value)
  local result
  if #value > PIECE then result = runtime.call("_crypto", "base64_decode", value) else result = compute("base64_decode", value) end
  if not result or result == FALSE then return nil, "this is not base64" end
  return result
end

-- Every piece is compared, also after a difference.
function crypto.equal(left, right)
  left, right = text(1, "equal", left), text(2, "equal", right)
  if #left ~= #right then return false end
  local differing = 0
  for from = 1, #left, PIECE do
    local to = from + PIECE - 1
    differing = differing + compute("equal", sub(left, from, to), sub(right, from, to)) - TRUE
  end
  return differing == 0
end

function crypto.uuid() return result_of(RANDOM, "uuid") end

function crypto.random_string(length)
  if type(length) ~= "number" then runtime.bad_argument(1, "crypto.random_string", "number", length) end
  if math_type(length) == "float" then length = length == length and length >= 0 and length <= PIECE and floor(length) or -1 end
  if length < 0 or length > PIECE then
    raw.error("bad argument #1 to 'crypto.random_string' (a length from 0 to 1048576 expected)", 2)
  end
  return result_of(RANDOM, "random_string", length)
end

return { crypto = crypto }
