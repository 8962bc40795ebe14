-- The functions copy and deep_copy.  Both return a table that can be written, even for a frozen one, and share metatables;
-- null and the empty array stay what they are; deep_copy keeps cycles, and shared tables shared.  Tables are read raw, and
-- without recursion: no nesting is too deep.

local runtime = ...
local raw, frozen, null, empty_array = runtime.raw, runtime.frozen, runtime.null, runtime.empty_array
local getmetatable, next, rawequal, type = raw.getmetatable, raw.next, raw.rawequal, raw.type
local setmetatable = runtime.setmetatable

runtime.complete()                      -- the table may be `_G`
local whole = runtime.whole

local function share_metatable(source, target)
  local meta = getmetatable(source)
  if type(meta) == "table" then setmetatable(target, meta) end
  return target
end

local function copy(value)
  if type(value) ~= "table" or rawequal(value, null) or rawequal(value, empty_array) then return value end
  local target = {}
  for key, member in next, frozen[whole(value)] or value do target[key] = member end
  return share_metatable(value, target)
end

-- Copies one table after another; `copy_of` puts every table that it has not met yet into the queue.
local function deep_copy(value)
  local queue, copies = {}, { [null] = null, [empty_array] = empty_array }
  local function copy_of(member)
    if type(member) ~= "table" then return member end
    local target = copies[member]
    if not target then
      target = {}
      copies[member], queue[#queue + 1] = target, member
    end
    return target
  end
  local result, index = copy_of(value), 1
  while queue[index] do
    local source = queue[index]
    local target = copies[source]
    for key, member in next, frozen[whole(source)] or source do target[copy_of(key)] = copy_of(member) end
    index = index + 1
  end
  for i = 1, #queue do share_metatable(queue[i], copies[queue[i]]) end
  return result
end

return { copy = copy, deep_copy = deep_copy }
