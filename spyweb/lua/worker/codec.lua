-- The msgpack codec of a VM: what a script passes to an op, and what comes back, crosses as one string.
-- The chunk takes the kit and returns two functions: encode(...) -> string, which loads with its first use, and
-- decode(string) -> list, count (the list may have holes, so the count says where it ends).  It puts into the kit its
-- sentinels `null` and `empty_array`, and `frozen` (frozen table -> where table.freeze has put its contents).
-- decode is strict: bytes that can't be right raise an error.

local kit = ...
local raw = kit.raw
local byte, format, sub, unpack = raw.string.byte, raw.string.format, raw.string.sub, raw.string.unpack
local error = raw.error

local MAX_DEPTH = 1000          -- of lists and maps
local NULL, EMPTY_ARRAY = 4, 5  -- wire.Ext

local null, empty_array = {}, {}
kit.null, kit.empty_array, kit.frozen = null, empty_array, raw.setmetatable({}, { __mode = "k" })

-- Frozen from the start: one that a script had changed would no longer mean what it says.
local SENTINEL = {
  __newindex = function() return kit.use("failures").refuse_write() end,
  __metatable = false,
}
kit.frozen[raw.setmetatable(null, SENTINEL)], kit.frozen[raw.setmetatable(empty_array, SENTINEL)] = {}, {}

-- What string.unpack reads after each code; the counts of the four last are of lists and maps.
local LAYOUT = {
  [0xc4] = ">s1", [0xc5] = ">s2", [0xc6] = ">s4", [0xca] = ">f", [0xcb] = ">d", [0xcc] = "B", [0xcd] = ">I2",
  [0xce] = ">I4", [0xcf] = ">i8", [0xd0] = "b", [0xd1] = ">i2", [0xd2] = ">i4", [0xd3] = ">i8", [0xd9] = ">s1",
  [0xda] = ">s2", [0xdb] = ">s4", [0xdc] = ">I2", [0xdd] = ">I4", [0xde] = ">I2", [0xdf] = ">I4",
}

local text, position, depth  -- what is being read; set anew by each decode
local get

local function fail(reason) error(format("bad msgpack at byte %d: %s", position, reason), 0) end

local function get_table(count, is_map)
  local contents = {}
  depth = depth + 1
  if depth > MAX_DEPTH then fail("nested too deep") end
  for i = 1, count do
    local key = i
    if is_map then
      key = get()
      if key == nil or key ~= key then fail("a key that Lua can't have") end
    end
    contents[key] = get()
  end
  depth = depth - 1
  return contents
end

local function get_short_string(size)
  local start = position
  position = start + size
  if position > #text + 1 then fail("cut short") end
  return sub(text, start, position - 1)
end

local function get_extension()
  local size, code, after = unpack("Bb", text, position)
  position = after
  get_short_string(size)
  if code == NULL then return null end
  if code == EMPTY_ARRAY then return empty_array end
  return fail("extension type " .. code)
end

local function get_sized(code)
  local layout, value = LAYOUT[code], nil
  if not layout then fail("code " .. code) end
  value, position = unpack(layout, text, position)
  if code >= 0xdc then return get_table(value, code >= 0xde) end
  -- An integer that only an unsigned one can hold becomes the nearest float.
  if code == 0xcf and value < 0 then return ((value >> 1) | (value & 1)) * 2.0 end
  return value
end

function get()
  local code = byte(text, position)
  if not code then fail("cut short") end
  position = position + 1
  if code < 0x80 then return code
  elseif code < 0x90 then return get_table(code - 0x80, true)
  elseif code < 0xa0 then return get_table(code - 0x90, false)
  elseif code < 0xc0 then return get_short_string(code - 0xa0)
  elseif code >= 0xe0 then return code - 0x100
  elseif code == 0xc0 then return nil
  elseif code == 0xc2 then return false
  elseif code == 0xc3 then return true
  elseif code == 0xc7 then return get_extension() end
  return get_sized(code)
end

-- The list itself is read like any other, but its length is kept: it may end in nil.
local function decode(packed)
  text, position, depth = packed, 2, 0
  local code, count = byte(text, 1) or 0, nil
  if code == 0xdc or code == 0xdd then count, position = unpack(LAYOUT[code], text, 2)
  elseif code >= 0x90 and code < 0xa0 then count = code - 0x90
  else fail("not a list") end
  local list = get_table(count, false)
  if position <= #text then fail("bytes left over") end
  text = nil
  return list, count
end

local write

local function encode(...)
  write = write or kit.part("encode")(kit)
  return write(...)
end

return encode, decode
