-- Raises the errors of calls to the library.  Loads with the first error that a script makes.
-- Each function raises at the line of the script, so each says in which frames it expects to be called.

local runtime = ...
local raw, frozen = runtime.raw, runtime.frozen
local error, pcall, rawget, tostring, type = raw.error, raw.pcall, raw.rawget, raw.tostring, raw.type
local find, format, gsub = raw.string.find, raw.string.format, raw.string.gsub

-- Raises as a C function of Lua would.  The script called our caller (level 3), unless another level is given.
local function bad_argument(position, name, expected, value, level)
  error(format("bad argument #%d to '%s' (%s expected, got %s)", position, name, expected, type(value)), level or 3)
end

-- Returns the text for an op that can't be called there.  Scripts know `_require` as `require`.
local function misplaced(name, place)
  return format("%s can't be called inside %s", (gsub(name, "^_", "")),
    place or "a table.sort comparator, a string.gsub callback or anything else that a C function of Lua calls")
end

-- Returns the text to log for a value whose __tostring may fail.
local function text_of(value)
  local ok, text = pcall(tostring, value)
  if runtime.internals.now.killed then runtime.internals.stop() end
  return ok and text or format("%s (its __tostring failed: %s)", type(value), runtime.use("ending").text_of(text))
end

-- Raises the error of a C function that was called under pcall, and so without its name and a line.  One that has a
-- position comes from the script's own __tostring; a memory error must stay the text that the prelude knows.
local function raise_again(name, value)
  if type(value) ~= "string" or value == "not enough memory" or find(value, "^[^\n]-:%d+: ") then error(value, 0) end
  error((gsub(value, "^(bad argument #%d+ to )'%?'", "%1'" .. name .. "'")), 2)
end

local function refuse_write()
  error("attempt to modify a readonly table", 2)
end

local function refuse_rawset(target, key)
  if type(target) ~= "table" then bad_argument(1, "rawset", "table", target, 4) end
  if frozen[target] then error("attempt to modify a readonly table", 3) end
  error(key == nil and "table index is nil" or "table index is NaN", 3)
end

-- The placeholder of an absent family holds its name.
local function refuse_call(family)
  error(rawget(family, 1) .. " is not part of this version", 2)
end

local function refuse_member(family, member)
  local name = rawget(family, 1)
  if type(member) == "string" then name = name .. "." .. member end
  error(name .. " is not part of this version", 2)
end

return {
  bad_argument = bad_argument, misplaced = misplaced, raise_again = raise_again, refuse_write = refuse_write,
  refuse_rawset = refuse_rawset, refuse_call = refuse_call, refuse_member = refuse_member, text_of = text_of,
}
