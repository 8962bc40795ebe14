-- The global `values`: the values of the settings, and of the request that started the run.  One frozen table for as long
-- as the VM lives, with the values of the run that began last.  Loads when a script first uses it, or with the first run
-- that is given some.

local runtime = ...
local frozen, next, setmetatable, type = runtime.frozen, runtime.raw.next, runtime.raw.setmetatable, runtime.raw.type

-- The table reads from what stands for it in `frozen`, as those do that table.freeze has frozen.
local FROZEN = {
  __metatable = false,
  __index = function(target, name) return frozen[target][name] end,
  __newindex = function() return runtime.use("failures").refuse_write() end,
  __len = function(target) return #frozen[target] end,
  __pairs = function(target) return next, frozen[target], nil end,
}

local given = { values = setmetatable({}, FROZEN) }
given.Values = given.values         -- as older files of sloth-runner have it

local function freeze(contents, target)
  for key, value in next, contents do
    if type(value) == "table" then contents[key] = freeze(value, setmetatable({}, FROZEN)) end
  end
  frozen[target] = contents
  return target
end

-- A run begins that sees these, or none.
function given.begin(values)
  runtime.given = values ~= nil
  freeze(values or {}, given.values)
end

freeze({}, given.values)
return given
