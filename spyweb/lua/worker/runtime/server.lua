-- The procedure `request`: answers one HTTP request of a Lua endpoint (lua/session.py says how).  Loads when one is first
-- begun, which is once in a VM: for a text it needs no more of our files than that.  The chunk takes the runtime.

local runtime, internals = ...
local raw, env = runtime.raw, runtime.env
local rawget, rawset, type = raw.rawget, raw.rawset, raw.type

local SMALL = 32768                             -- bytes of a body that leaves as the run's result
local PACKED = ">BBBi8Bs4"                      -- msgpack: a list of a list of two, an integer and bytes

local server = {}

local function tables() return { get = {}, post = {}, put = {}, patch = {}, delete = {}, all = {} } end

-- Makes the tables that handlers are put in.
function server.add_routes()
  for name, of_method in raw.next, tables() do rawset(env, name, of_method) end
  rawset(env, "public", tables())
end

local function handler_in(routes, method, route)
  local of_method = type(routes) == "table" and routes[method]
  local f = type(of_method) == "table" and rawget(of_method, route)
  return type(f) == "function" and f or nil
end

local function serve(request)
  runtime.script()
  for i = 1, runtime.more and #runtime.more or 0 do runtime.more[i]() end
  local routes, method, route = request.is_public and env.public or env, raw.string.lower(request.method), request.route
  if method == "head" then method = "get" end
  local f = handler_in(routes, method, route) or handler_in(routes, "all", route)
  if not f then return 404, nil, "Not Found" end
  request.route, request.is_public = nil, nil
  internals.now.run.called = f
  local value = f(request)
  internals.now.run.called = nil
  if value == nil then return 200, nil, "" end
  if type(value) == "string" then return 200, nil, value end
  return runtime.use("response").of(value)
end

-- The client that waits for the answer need not wait for deferred functions.
local function fail(run, value)
  internals.failed(run, value, run.frames)
  if run.defers[1] and value ~= "not enough memory" then internals.traced(run, runtime.call, "_respond") end
end

-- Answers by an op: the answer is large, or has headers, or deferred functions follow.  Returns whether it was sent.
local function respond(run, status, headers, body)
  local sent, problem = internals.traced(run, runtime.call, "_respond", status, headers or nil, body)
  if not sent then
    internals.failed(run, problem, run.frames)
  elseif run.defers[1] then
    runtime.use("ending").run_defers(run)
  end
  return sent
end

local function conclude(run, ok, status, headers, body)
  if not ok then return fail(run, status) end
  if not run.defers[1] and not headers and #body <= SMALL then
    run.packed = raw.string.pack(PACKED, 0x91, 0x92, 0xd3, status, 0xc6, body)
  elseif not respond(run, status, headers, body) then
    return
  end
  run.ended, run.reason, run.traceback, run.ctx = 0, "", "", nil
end

-- The names of the request's headers are in lower case; a lookup may use any case.
local HEADERS = {
  __metatable = false,
  __index = function(...) return runtime.use("headers").find(...) end,
}

-- Deferred functions may call ops; no hook follows, however the run ends.
function server.request(run, request)
  run.is_patient, run.ctx, run.announced, run.finished = true, {}, false, true
  server.add_routes()
  if type(request) == "table" and type(request.headers) == "table" then raw.setmetatable(request.headers, HEADERS) end
  conclude(run, internals.traced(run, serve, request))
end

return server
