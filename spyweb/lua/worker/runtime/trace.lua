-- Finds where in the script something happened: positions for errors, and tracebacks.  Loads at the first failure.
-- The chunk takes the runtime and returns a table of functions.  Only the script's own frames are shown: frames of C, and of
-- our own chunks, which are stripped and have no lines, are left out.

local runtime = ...
local raw, env, getinfo = runtime.raw, runtime.env, runtime.getinfo
local format, match, concat = raw.string.format, raw.string.match, raw.table.concat
local max, next, rawequal, type = raw.math.max, raw.next, raw.rawequal, raw.type

local OURS = "=?"                   -- the source of a stripped chunk
local MAX_FRAMES = 20               -- in one traceback
local MAX_LEVELS = 500              -- searched for a position: 150 nested calls of ours are 450

local trace = {}

-- Returns the level, for `error` in the calling function, of the nearest frame of the script; 0 when there is none.
function trace.level()
  for level = 3, MAX_LEVELS do
    local info = getinfo(level, "S")
    if not info then return 0 end
    if info.what ~= "C" and info.source ~= OURS then return level - 1 end
  end
  return 0
end

local function global_name(f)
  for name, value in next, env do
    if rawequal(value, f) and type(name) == "string" then return name end
  end
end

local function describe(info)
  local what
  local name = global_name(info.func)
  if name then what = format("function '%s'", name)
  elseif info.what == "main" then what = "main chunk"
  elseif info.namewhat ~= "" then what = format("%s '%s'", info.namewhat == "global" and "function" or info.namewhat, info.name)
  else what = format("function <%s:%d>", info.short_src, info.linedefined) end
  return format("\t%s:%d: in %s", info.short_src, info.currentline, what)
end

-- Adds the script's frames of a coroutine, innermost first.
function trace.add(lines, co)
  local level, was_tail_call = 0, false
  while #lines <= MAX_FRAMES do
    local info = getinfo(co, level, "Slntf")
    if not info then return lines end
    if info.what ~= "C" and info.source ~= OURS then
      if was_tail_call then lines[#lines + 1] = "\t(...tail calls...)" end
      lines[#lines + 1] = #lines < MAX_FRAMES and describe(info) or "\t..."
      was_tail_call = info.istailcall
    end
    level = level + 1
  end
  return lines
end

-- Stands for frames that have been dropped: shows where the called function begins, or the last line of a file.
function trace.definition(f)
  local info = type(f) == "function" and getinfo(f, "SL")
  if not info or info.what == "C" or info.source == OURS then return nil end
  if info.what == "main" then
    local last = 1
    for line in next, info.activelines or {} do last = max(last, line) end
    return { format("\t%s:%d: in main chunk, which ends there", info.short_src, last) }
  end
  local name = global_name(f)
  name = name and format("function '%s'", name) or "a function"
  return { format("\t%s:%d: in %s, which begins there", info.short_src, info.linedefined, name) }
end

-- Returns the frames as text for people.
function trace.text(lines)
  return lines and lines[1] and "stack traceback:\n" .. concat(lines, "\n") or ""
end

-- Returns "file:line: " of the innermost frame.
function trace.position(lines)
  return lines and lines[1] and match(lines[1], "^\t(.-: )in ") or ""
end

return trace
