-- Decodes the msgpack codes that are rare in what a run begins with, for codec.lua.  Loads when the first of them comes, so
-- that the VM of a request does without.  The chunk returns a table of functions.

local runtime = ...
local error, format, unpack = runtime.raw.error, runtime.raw.string.format, runtime.raw.string.unpack

local NULL, EMPTY_ARRAY = 4, 5  -- wire.Ext

-- What string.unpack reads after each code; the counts of the four last are of lists and maps.
local LAYOUT = {
  [0xc5] = ">s2", [0xc6] = ">s4", [0xca] = ">f", [0xcb] = ">d", [0xcc] = "B", [0xcd] = ">I2", [0xce] = ">I4",
  [0xcf] = ">i8", [0xd0] = "b", [0xd1] = ">i2", [0xd2] = ">i4", [0xd3] = ">i8", [0xda] = ">s2", [0xdb] = ">s4",
  [0xdc] = ">I2", [0xdd] = ">I4", [0xde] = ">I2", [0xdf] = ">I4",
}

local codes = {}

function codes.fail(position, reason) error(format("bad msgpack at byte %d: %s", position, reason), 0) end

local function read_extension(text, position)
  local size, code, after = unpack("Bb", text, position)
  after = after + size
  if after > #text + 1 then codes.fail(after, "cut short") end
  if code == NULL then return runtime.null, after end
  if code == EMPTY_ARRAY then return runtime.empty_array, after end
  return codes.fail(after, "extension type " .. code)
end

-- Reads what follows a code: a value, or the number of entries of a list or map; returns it, the next position, and whether
-- it is such a number.
function codes.read(code, text, position)
  if code == 0xc7 then return read_extension(text, position) end
  local layout = LAYOUT[code]
  if not layout then codes.fail(position, "code " .. code) end
  local value, after = unpack(layout, text, position)
  -- An integer beyond Lua's largest becomes the nearest float.
  if code == 0xcf and value < 0 then value = ((value >> 1) | (value & 1)) * 2.0 end
  return value, after, code >= 0xdc
end

return codes
