-- The function string.split of Luau.  Loads when a script first asks `string` for something that Lua does not have.

local runtime = ...
local raw = runtime.raw
local find, sub, tostring, type = raw.string.find, raw.string.sub, raw.tostring, raw.type

local function split_bytes(text)
  local pieces = {}
  for i = 1, #text do pieces[i] = sub(text, i, i) end
  return pieces
end

local function checked(value, default)
  if value == nil and default then return default end
  if type(value) == "number" then return tostring(value) end
  return type(value) == "string" and value or nil
end

local function split(text, separator)
  local source, divider = checked(text), checked(separator, ",")
  if not source then runtime.bad_argument(1, "split", "string", text) end
  if not divider then runtime.bad_argument(2, "split", "string", separator) end
  if divider == "" then return split_bytes(source) end
  local pieces, n, from = {}, 0, 1
  while true do
    local start, stop = find(source, divider, from, true)
    n = n + 1
    pieces[n] = sub(source, from, start and start - 1)
    if not start then return pieces end
    from = stop + 1
  end
end

return { split = split }
