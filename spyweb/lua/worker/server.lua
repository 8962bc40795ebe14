-- The procedure `request`: what a Lua endpoint answers to one HTTP request (lua/procedures.py says how).  Loaded when one
-- is first begun.  The chunk takes the kit and what procedures share.

local kit, shared = ...
local raw, env, border = kit.raw, kit.env, kit.border
local lower, pack, rawget, type = raw.string.lower, raw.string.pack, raw.rawget, raw.type

local SMALL = 32768                             -- bytes of a body that leaves as the run's result
local PACKED = ">BBBi8Bs4"                      -- msgpack: a list of a list of two, an integer and bytes

local function handler_in(tables, method, route)
  local of_method = type(tables) == "table" and tables[method]
  local f = type(of_method) == "table" and rawget(of_method, route)
  return type(f) == "function" and f or nil
end

local function handler_for(request)
  local tables, method = request.is_public and env.public or env, lower(request.method)
  if method == "head" then method = "get" end
  return handler_in(tables, method, request.route) or handler_in(tables, "all", request.route)
end

-- What a handler returned, as status, headers and body.
local function response(value)
  if value == nil then return 200, nil, "" end
  if type(value) == "string" then return 200, nil, value end
  return kit.use("response").of(value)
end

local function serve(request)
  shared.execute()
  local f = handler_for(request)
  if not f then return 404, nil, "Not Found" end
  request.route, request.is_public = nil, nil
  return response(f(request))
end

-- Whoever waits for the answer need not wait for what it deferred.
local function fail(run, value)
  border.failed(run, value, run.frames)
  if run.defers[1] and value ~= "not enough memory" then border.traced(run, kit.call, "_respond") end
end

local function conclude(run, ok, status, headers, body)
  if not ok then return fail(run, status) end
  if not run.defers[1] and not headers and #body <= SMALL then
    run.packed = pack(PACKED, 0x91, 0x92, 0xd3, status, 0xc6, body)
    return shared.succeed(run)
  end
  local sent, problem = border.traced(run, kit.call, "_respond", status, headers or nil, body)
  if not sent then return border.failed(run, problem, run.frames) end
  if run.defers[1] then border.use("ending").run_defers(run) end
  shared.succeed(run)
end

local procedures = {}

function procedures.request(run, request)
  run.is_patient = true             -- what it defers may call ops
  shared.without_hooks(run, {})
  shared.add_routes()
  kit.use("headers").with_headers(request)
  conclude(run, border.traced(run, serve, request))
end

return procedures
