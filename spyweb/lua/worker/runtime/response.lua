-- Reads the response that a request handler has returned, when that is not just a text.  Loads when it first is not, so that
-- a text costs less.  The chunk takes the runtime.

local runtime = ...
local raw = runtime.raw
local error, floor, format, lower = raw.error, raw.math.floor, raw.string.format, raw.string.lower
local next, tonumber, tostring, type = raw.next, raw.tonumber, raw.tostring, raw.type
local text_of = runtime.use("values").tostring

local LOWEST, HIGHEST = 100, 599                -- of a status

local function status_of(value)
  if value == nil then return 200 end
  local number = tonumber(value)
  if not number or number ~= number then error(format("status must be a number, got %s", tostring(value)), 0) end
  return number < LOWEST and LOWEST or number > HIGHEST and HIGHEST or floor(number)
end

local PLAIN = { string = true, number = true, boolean = true }

local function headers_of(values)
  local headers = {}
  if values ~= nil and type(values) ~= "table" then error(format("headers must be a table, got %s", type(values)), 0) end
  for name, value in next, values or headers do
    if not PLAIN[type(value)] then error(format("the header %s must be text, got %s", tostring(name), type(value)), 0) end
    headers[text_of(name)] = text_of(value)
  end
  return headers
end

local function has_type(headers)
  for name in next, headers do
    if lower(name) == "content-type" then return true end
  end
end

local function body_of(value, headers)
  if value == nil then return "" end
  if PLAIN[type(value)] then return text_of(value) end
  if type(value) ~= "table" then error(format("body must be text, a number, a boolean or a table, got %s", type(value)), 0) end
  local body = runtime.use("json").json_encode(value)
  if not has_type(headers) then headers["Content-Type"] = "application/json" end
  return body
end

local response = {}

-- Returns status, headers and body.
function response.of(value)
  if type(value) ~= "table" then
    error(format("a handler must return text, a table with status, body and headers, or nothing; it returned a %s",
      type(value)), 0)
  end
  local headers = headers_of(value.headers)
  local body = body_of(value.body, headers)
  return status_of(value.status), next(headers) and headers, body
end

return response
