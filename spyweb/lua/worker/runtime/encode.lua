-- Encodes Lua values as msgpack.  Loads when a script first passes or returns more than plain values.
-- The chunk takes the runtime and returns encode(...) -> string, and how many values are in its tables.  It never fails on
-- a value and never runs a script's code: metamethods are not called, and a value that only Lua has becomes an extension
-- type (wire.Ext).

local runtime = ...
local raw, frozen, null, empty_array = runtime.raw, runtime.frozen, runtime.null, runtime.empty_array
local char, format, pack = raw.string.char, raw.string.format, raw.string.pack
local concat, tointeger = raw.table.concat, raw.math.tointeger
local next, rawget, rawlen, select, setmetatable, type = raw.next, raw.rawget, raw.rawlen, raw.select, raw.setmetatable, raw.type

local MAX_DEPTH = 64  -- of tables; wire.Ext.DEEP says where it was cut
local FOREIGN, CYCLE, DEEP, NULL, EMPTY_ARRAY = 1, 2, 3, 4, 5  -- wire.Ext
-- limits.py: NUMBER_KEYS. Python's hash of a number is known to all, that of a text is not: the daemon would be slow to read a
-- table of very many keys that were chosen to collide.
local MOST_NUMBERS = 5000
local OVER_NUMBERS = format("table over the limit of %d number keys in all", MOST_NUMBERS)

-- One-byte strings, made when first needed: a lookup is cheaper than string.char.
local BYTE = setmetatable({}, { __index = function(cache, code)
  local made = char(code)
  cache[code] = made
  return made
end })

local function put_string(out, n, value)
  local length = #value
  if length < 256 then
    out[n], out[n + 1], out[n + 2] = "\xc4", BYTE[length], value
    return n + 3
  end
  out[n], out[n + 1] = length < 65536 and pack(">BI2", 0xc5, length) or pack(">BI4", 0xc6, length), value
  return n + 2
end

local function put_number(out, n, value)
  if value >= 0 and value < 128 and value % 1 == 0 then
    out[n] = BYTE[value]
    return n + 1
  end
  local integer = tointeger(value)
  out[n] = integer and pack(">Bi8", 0xd3, integer) or pack(">Bd", 0xcb, value)
  return n + 1
end

-- Returns n for a table whose keys are exactly 1..n, otherwise nothing.
local function array_length(contents)
  local length = rawlen(contents)
  if length == 0 then return nil end
  local count = 0
  for _ in next, contents do
    count = count + 1
    if count > length then return nil end
  end
  return count == length and length or nil
end

local put
-- The tables around the one being written and the sentinels, each with its extension type.  New for each encode, so that
-- a killed one leaves nothing behind.
local inside
local elements, numbers  -- in all tables: values, and keys of maps that are no strings

local function put_array(out, n, contents, length, depth)
  if length < 16 then out[n] = BYTE[0x90 + length] else out[n] = pack(">BI4", 0xdd, length) end
  n = n + 1
  elements = elements + length
  for i = 1, length do n = put(out, n, contents[i], depth) end
  return n
end

local function put_extension(out, n, code, text)
  out[n] = char(0xc7, #text, code) .. text
  return n + 1
end

-- Python could not use a list or a dict as a key, so a table there is as foreign as a function.  Nor does it tell true from
-- 1 and false from 0: when a table has both, the boolean can't cross.
local function put_key(out, n, key, contents)
  local kind = type(key)
  if kind == "table" then return put_extension(out, n, FOREIGN, kind) end
  if kind == "boolean" and rawget(contents, key and 1 or 0) ~= nil then
    return put_extension(out, n, FOREIGN, format("boolean beside the number %d", key and 1 or 0))
  end
  return put(out, n, key, 0)
end

local function put_map(out, n, contents, depth)
  local header, count, before = n, 0, numbers
  n = n + 1
  for key, value in next, contents do
    count = count + 1
    if type(key) == "string" then
      n = put_string(out, n, key)
    else
      numbers = numbers + 1
      n = put_key(out, n, key, contents)
    end
    n = put(out, n, value, depth)
  end
  elements = elements + count
  if numbers > MOST_NUMBERS and numbers > before then
    numbers = before
    for i = header, n - 1 do out[i] = nil end
    return put_extension(out, header, FOREIGN, OVER_NUMBERS)
  end
  if count < 16 then out[header] = BYTE[0x80 + count] else out[header] = pack(">BI4", 0xdf, count) end
  return n
end

local function put_table(out, n, value, depth)
  local sign = inside[value]
  if sign then return put_extension(out, n, sign, "table") end
  if depth >= MAX_DEPTH then return put_extension(out, n, DEEP, "table") end
  inside[value] = CYCLE
  local contents = frozen[value] or value
  local length = array_length(contents)
  if length then n = put_array(out, n, contents, length, depth + 1) else n = put_map(out, n, contents, depth + 1) end
  inside[value] = nil
  return n
end

function put(out, n, value, depth)
  local kind = type(value)
  if kind == "string" then return put_string(out, n, value) end
  if kind == "number" then return put_number(out, n, value) end
  if kind == "table" then return put_table(out, n, value, depth) end
  if kind == "boolean" then out[n] = value and "\xc3" or "\xc2"
  elseif kind == "nil" then out[n] = "\xc0"
  else return put_extension(out, n, FOREIGN, kind) end
  return n + 1
end

local function encode(...)
  local count, values, out, n = select("#", ...), { ... }, {}, 2
  elements, numbers = count, 0
  inside = { [null] = NULL, [empty_array] = EMPTY_ARRAY }
  out[1] = count < 16 and BYTE[0x90 + count] or pack(">BI4", 0xdd, count)
  for i = 1, count do n = put(out, n, values[i], 0) end
  inside = nil
  return concat(out), elements
end

return encode
