-- The msgpack codec of a VM: what a script passes to an op, and what comes back, crosses as one string.
-- The chunk takes the kit and returns two functions: encode(...) -> string, and decode(string) -> list, count (the list
-- may have holes, so the count says where it ends).  It puts its sentinels into the kit: null, empty_array, and `frozen`
-- (frozen table -> where table.freeze has put its contents).
-- encode never fails on a value and never runs a script's code: metamethods are not called, and what only Lua has
-- becomes an extension type (wire.Ext).  decode is strict: bytes that can't be right raise an error.

local kit = ...
local raw = kit.raw
local byte, char, pack, sub, unpack = raw.string.byte, raw.string.char, raw.string.pack, raw.string.sub, raw.string.unpack
local concat, tointeger = raw.table.concat, raw.math.tointeger
local error, next, rawlen, select = raw.error, raw.next, raw.rawlen, raw.select
local setmetatable, type = raw.setmetatable, raw.type

local MAX_DEPTH = 64            -- of tables that a script passes; wire.Ext.DEEP says where it was cut
local MAX_DEPTH_BACK = 1000     -- of what the daemon passes
local FOREIGN, CYCLE, DEEP, NULL, EMPTY_ARRAY = 1, 2, 3, 4, 5  -- wire.Ext

local frozen = kit.frozen or setmetatable({}, { __mode = "k" })
local null, empty_array = kit.null or {}, kit.empty_array or {}
kit.frozen, kit.null, kit.empty_array = frozen, null, empty_array

-- Headers that occur again and again, made when first needed: a lookup costs a tenth of string.pack.
local function made_once(make)
  return setmetatable({}, { __index = function(cache, key)
    local made = make(key)
    cache[key] = made
    return made
  end })
end
local BYTE = made_once(char)
local SHORT_STRING = made_once(function(length) return char(0xc4, length) end)

local function put_string(out, n, value)
  local length = #value
  if length < 256 then out[n] = SHORT_STRING[length]
  elseif length < 65536 then out[n] = pack(">BI2", 0xc5, length)
  else out[n] = pack(">BI4", 0xc6, length) end
  out[n + 1] = value
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

-- The n of a table whose keys are exactly 1..n, else nothing.
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

local function put_array(out, n, contents, length, depth)
  if length < 16 then out[n] = BYTE[0x90 + length] else out[n] = pack(">BI4", 0xdd, length) end
  n = n + 1
  for i = 1, length do n = put(out, n, contents[i], depth) end
  return n
end

local function put_extension(out, n, code, text)
  out[n] = char(0xc7, #text, code) .. text
  return n + 1
end

-- Python could not use a list or a dict as a key, so a table there is as foreign as a function.
local function put_key(out, n, key)
  if type(key) == "table" then return put_extension(out, n, FOREIGN, "table") end
  return put(out, n, key, 0)
end

local function put_map(out, n, contents, depth)
  local header, count = n, 0
  n = n + 1
  for key, value in next, contents do
    count = count + 1
    if type(key) == "string" then n = put_string(out, n, key) else n = put_key(out, n, key) end
    n = put(out, n, value, depth)
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
  inside = { [null] = NULL, [empty_array] = EMPTY_ARRAY }
  out[1] = count < 16 and BYTE[0x90 + count] or pack(">BI4", 0xdd, count)
  for i = 1, count do n = put(out, n, values[i], 0) end
  inside = nil
  return concat(out)
end

local text, position, depth  -- what is being read; set anew by each decode
local get

local function fail(reason) error("bad msgpack at byte " .. position .. ": " .. reason, 0) end

-- Reads `size` bytes; what is missing must not pass as a short string.
local function get_bytes(size)
  local start = position
  position = start + size
  if position > #text + 1 then fail("cut short") end
  return sub(text, start, position - 1)
end

local function get_number(layout, size)
  return (unpack(layout, get_bytes(size)))
end

local function get_array(count)
  local list = {}
  depth = depth + 1
  if depth > MAX_DEPTH_BACK then fail("nested too deep") end
  for i = 1, count do list[i] = get() end
  depth = depth - 1
  return list
end

local function get_key()
  local key = get()
  if key == nil or key ~= key then fail("a key that Lua can't have") end
  return key
end

local function get_map(count)
  local map = {}
  depth = depth + 1
  if depth > MAX_DEPTH_BACK then fail("nested too deep") end
  for _ = 1, count do
    local key = get_key()
    map[key] = get()
  end
  depth = depth - 1
  return map
end

-- An integer that only an unsigned one can hold becomes the nearest float.
local function get_unsigned()
  local integer = get_number(">i8", 8)
  if integer >= 0 then return integer end
  return ((integer >> 1) | (integer & 1)) * 2.0
end

local function get_extension(size)
  local code = get_number("b", 1)
  get_bytes(size)
  if code == NULL then return null end
  if code == EMPTY_ARRAY then return empty_array end
  return fail("extension type " .. code)
end

-- From the most to the least frequent; as a table of functions it would cost each VM 6 KB.
local function get_sized(code)
  if code == 0xc4 then return get_bytes(get_number("B", 1))
  elseif code == 0xd3 then return get_number(">i8", 8)
  elseif code == 0xcb then return get_number(">d", 8)
  elseif code == 0xcc then return get_number("B", 1)
  elseif code == 0xcd then return get_number(">I2", 2)
  elseif code == 0xce then return get_number(">I4", 4)
  elseif code == 0xcf then return get_unsigned()
  elseif code == 0xd0 then return get_number("b", 1)
  elseif code == 0xd1 then return get_number(">i2", 2)
  elseif code == 0xd2 then return get_number(">i4", 4)
  elseif code == 0xd9 then return get_bytes(get_number("B", 1))
  elseif code == 0xc5 or code == 0xda then return get_bytes(get_number(">I2", 2))
  elseif code == 0xc6 or code == 0xdb then return get_bytes(get_number(">I4", 4))
  elseif code == 0xdc then return get_array(get_number(">I2", 2))
  elseif code == 0xdd then return get_array(get_number(">I4", 4))
  elseif code == 0xde then return get_map(get_number(">I2", 2))
  elseif code == 0xdf then return get_map(get_number(">I4", 4))
  elseif code == 0xca then return get_number(">f", 4)
  elseif code == 0xc7 then return get_extension(get_number("B", 1)) end
  return fail("code " .. code)
end

function get()
  local code = byte(text, position)
  if not code then fail("cut short") end
  position = position + 1
  if code < 0x80 then return code
  elseif code < 0x90 then return get_map(code - 0x80)
  elseif code < 0xa0 then return get_array(code - 0x90)
  elseif code < 0xc0 then return get_bytes(code - 0xa0)
  elseif code >= 0xe0 then return code - 0x100
  elseif code == 0xc0 then return nil
  elseif code == 0xc2 then return false
  elseif code == 0xc3 then return true end
  return get_sized(code)
end

local function get_count()
  local code = byte(text, 1)
  position = 2
  if code and code >= 0x90 and code < 0xa0 then return code - 0x90 end
  if code == 0xdc then return get_number(">I2", 2) end
  if code == 0xdd then return get_number(">I4", 4) end
  return fail("not a list")
end

local function decode(packed)
  text, depth = packed, 0
  local count = get_count()
  local list = get_array(count)
  if position <= #text then fail("bytes left over") end
  text = nil
  return list, count
end

return encode, decode
