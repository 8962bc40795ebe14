-- Kills a run that must end, goes on after a failed call of the script that was not protected, and collects the frames that
-- show where.  Loads when a script first fails or is killed, or when another part needs one of these.  The chunk takes the
-- runtime and the internals, and returns further members of the internals.

local runtime, internals = ...
local raw, use = runtime.raw, runtime.use
local now, hook, sethook, spawn, ended = internals.now, internals.hook, internals.sethook, internals.spawn, internals.ended
local raise, pcall, rawequal = raw.error, raw.pcall, raw.rawequal
local resume, running = raw.coroutine.resume, raw.coroutine.running

local OUT_OF_MEMORY = "not enough memory"                       -- Lua's own text
local WHY = { "cpu limit exceeded", "timed out", "cancelled", "stopped", OUT_OF_MEMORY, "over its timeout" }  -- by wire.Why
local ROOM = 16384                                              -- bytes: for a coroutine, and for saying where
local EMIT = 1                                                  -- the purpose of a call to the worker
local STEP_AFTERMATH, STEP_SEQUEL = 2, 4                        -- the kinds of result of a step (values.StepKind)

local kills = {}

--
-- Where it happened
--

-- Raises at the line of the script that called us.
function kills.fail(message) raise(message, use("trace").level()) end

-- Where memory or C stack are short there is no traceback, and that must not be what ends the run.
local function add_frames(lines, co)
  local ok, trace = pcall(use, "trace")
  if ok then pcall(trace.add, lines, co) end
  return lines
end
kills.add_frames = add_frames

-- Adds the frames of a failure in the coroutine, behind those of the coroutines further in that it came through.
local function frames_of(run, value, co)
  local trail = run.trail
  local inner = now.killed and run.stopped or trail and rawequal(trail.value, value) and trail
  local frames = inner and inner.frames or {}
  return inner and inner.co == co and frames or add_frames(frames, co)
end

function kills.note_frames(value)
  local run = now.run
  if not (now.killed and run.frames) then run.frames = frames_of(run, value, running()) end
end

--
-- Kills
--

-- Raises the error that ends the step.  Its first position is kept: further out only the rest of the chain can be seen.
local function stop()
  local run = now.run
  if run and not run.stopped then run.stopped = { co = running(), frames = add_frames({}, running()) } end
  raise(WHY[now.killed], 0)
end
kills.stop = stop

function kills.unless_killed(...)
  if now.killed then stop() end
  return ...
end

function kills.hooked(co)
  sethook(co, hook, "", internals.coroutine_count)
  return co
end

function kills.emit(level, text) return internals.host(EMIT, level, text) end

local function run_aftermath(run) use("ending").aftermath(run) end

-- After a kill or a memory error: hooks and deferred functions have a separate coroutine and budget.
local function rescue(run)
  run.discard, run.packed, run.deferring = true, nil, false
  if run.rescuing or not run.ctx or not internals.needs_aftermath(run) then return ended(run) end
  run.rescuing = true
  now.last_ended = run.co
  return STEP_AFTERMATH, spawn(run, run_aftermath), run.ended
end

local function end_killed(run, frames)
  local why = now.killed
  frames = frames or run.frames or run.stopped and run.stopped.frames
  now.killed, run.frames, run.stopped = nil, nil, nil
  if run.rescuing then
    use("ending").overran(run, frames)
    return ended(run)
  end
  use("ending").killed(run, why, WHY[why], frames)
  return rescue(run)
end

-- The call of the script was not protected, and has ended the coroutine.  What follows needs another, on the same budget.
local function fall(run, value)
  local frames = frames_of(run, value, run.co)
  run.is_bare = false
  if now.killed then return end_killed(run, frames) end
  run.fallen, run.value, run.frames = run.co, value, frames
  now.last_ended = run.co
  return STEP_SEQUEL, spawn(run, run_aftermath)
end

-- Says whether there is memory for `step_result`: half-way it would be too late to ask for more.
function kills.have_room(run)
  return run.rescuing or pcall(use, "ending") and pcall(use, "trace") and (pcall(raw.string.rep, " ", ROOM))
end

-- Returns the result of a step that was killed, or failed for another reason than memory.
function kills.step_result(run, ok, value)
  if not ok and run.is_bare then return fall(run, value) end
  if now.killed then return end_killed(run, nil) end
  internals.failed(run, value, nil)
  run.discard = true
  return ended(run)
end

-- The VM has been given room, to say where memory ran out, or to return the result of the step.
function kills.say_where(run)
  if run.unreported then
    run.ended, run.unreported, run.discard = false, false, true
    return kills.step_result(run, false, run.value)
  end
  use("ending").starved(run)
  return rescue(run)
end

-- Ends a run that waits.
function kills.kill(id, why)
  local run = internals.runs[id]
  if run.branches then use("branches").leave(run) end
  now.run, now.depth, now.killed = run, run.depth, why
  sethook(run.co, hook, "", 1)
  return internals.step_result(run, resume(run.co))
end

return kills
