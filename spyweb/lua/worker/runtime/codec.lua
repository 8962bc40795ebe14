-- Decodes msgpack: a VM receives values from the daemon as one packed string.  This is the part of the codec that every
-- VM needs; codes.lua and encode.lua load when they are needed.
-- The chunk returns decode(string) -> list, count (the list may have holes, so the count says where it ends).  decode is
-- strict: it raises an error on invalid bytes.

local runtime = ...
local byte, sub = runtime.raw.string.byte, runtime.raw.string.sub

local MAX_DEPTH = 1000          -- of lists and maps

local text, position, depth  -- of the text being read; set anew by each decode
local get

local function fail(reason) runtime.use("codes").fail(position, reason) end

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
  local value, after, is_table = runtime.use("codes").read(code, text, position)
  position = after
  if is_table then return get_table(value, code >= 0xde) end
  return value
end

-- Reads a short text, or a longer one whose size is in the next byte, or anything else.
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

-- The outermost list is read like any other, but its length is returned: it may end in nil.
return function(packed)
  text, position, depth = packed, 2, 0
  local code, count = byte(text, 1) or 0, nil
  if code >= 0x90 and code < 0xa0 then count = code - 0x90
  elseif code == 0xdc or code == 0xdd then count, position = runtime.use("codes").read(code, text, 2)
  else fail("not a list") end
  local list = get_table(count, false)
  if position <= #text then fail("bytes left over") end
  text = nil
  return list, count
end
