-- The msgpack codec of a VM: what a script passes to an op, and what comes back, crosses as one string.  What writes is
-- encode.lua, which loads when it is needed.
-- The chunk returns decode(string) -> list, count (the list may have holes, so the count says where it ends).  decode is
-- strict: bytes that can't be right raise an error.

local runtime = ...
local raw = runtime.raw
local byte, error, format, sub, unpack = raw.string.byte, raw.error, raw.string.format, raw.string.sub, raw.string.unpack

local MAX_DEPTH = 1000          -- of lists and maps

local NULL, EMPTY_ARRAY = 4, 5  -- wire.Ext

-- What string.unpack reads after each code; the counts of the four last are of lists and maps.
local LAYOUT = {
  [0xc5] = ">s2", [0xc6] = ">s4", [0xca] = ">f", [0xcb] = ">d", [0xcc] = "B", [0xcd] = ">I2", [0xce] = ">I4",
  [0xcf] = ">i8", [0xd0] = "b", [0xd1] = ">i2", [0xd2] = ">i4", [0xd3] = ">i8", [0xda] = ">s2", [0xdb] = ">s4",
  [0xdc] = ">I2", [0xdd] = ">I4", [0xde] = ">I2", [0xdf] = ">I4",
}

local function fail_at(place, reason) error(format("bad msgpack at byte %d: %s", place, reason), 0) end

local function read_extension(packed, at)
  local size, code, after = unpack("Bb", packed, at)
  after = after + size
  if after > #packed + 1 then fail_at(after, "cut short") end
  if code == NULL then return runtime.null, after end
  if code == EMPTY_ARRAY then return runtime.empty_array, after end
  return fail_at(after, "extension type " .. code)
end

-- What stands after a code that is rare in what a run begins with: a value, or how many entries a list or map has; where
-- the next one begins; is it a count.
local function read_rare(code, packed, at)
  if code == 0xc7 then return read_extension(packed, at) end
  local layout = LAYOUT[code]
  if not layout then fail_at(at, "code " .. code) end
  local value, after = unpack(layout, packed, at)
  -- An integer that only an unsigned one can hold becomes the nearest float.
  if code == 0xcf and value < 0 then value = ((value >> 1) | (value & 1)) * 2.0 end
  return value, after, code >= 0xdc
end

local text, position, depth  -- what is being read; set anew by each decode
local get

local function fail(reason) fail_at(position, reason) end

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

local function get_other(code)
  local value, after, is_table = read_rare(code, text, position)
  position = after
  if is_table then return get_table(value, code >= 0xde) end
  return value
end

-- A short text, or a longer one whose size is in the next byte, or anything else.
function get()
  local code, size = byte(text, position), nil
  if not code then fail("cut short") end
  position = position + 1
  if code < 0x80 then return code
  elseif code < 0x90 then return get_table(code - 0x80, true)
  elseif code < 0xa0 then return get_table(code - 0x90, false)
  elseif code < 0xc0 then size = code - 0xa0
  elseif code >= 0xe0 then return code - 0x100
  elseif code == 0xc0 then return nil
  elseif code == 0xc2 then return false
  elseif code == 0xc3 then return true
  elseif code == 0xd9 or code == 0xc4 then
    size = byte(text, position) or fail("cut short")
    position = position + 1
  else return get_other(code) end
  local start = position
  position = start + size
  if position > #text + 1 then fail("cut short") end
  return sub(text, start, position - 1)
end

-- The list itself is read like any other, but its length is kept: it may end in nil.
return function(packed)
  text, position, depth = packed, 2, 0
  local code, count = byte(text, 1) or 0, nil
  if code >= 0x90 and code < 0xa0 then count = code - 0x90
  elseif code == 0xdc or code == 0xdd then count, position = read_rare(code, text, 2)
  else fail("not a list") end
  local list = get_table(count, false)
  if position <= #text then fail("bytes left over") end
  text = nil
  return list, count
end
