-- The procedure `request`: what a Lua endpoint answers to one HTTP request (lua/procedures.py says how).  Loaded when one
-- is first begun.  The chunk takes the kit and what procedures share.

local kit, shared = ...
local raw, env, border = kit.raw, kit.env, kit.border
local error, floor = raw.error, raw.math.floor
local format, lower, pack = raw.string.format, raw.string.lower, raw.string.pack
local math_type, next, rawget, tointeger = raw.math.type, raw.next, raw.rawget, raw.math.tointeger
local tonumber, tostring, type = raw.tonumber, raw.tostring, raw.type

local LOWEST, HIGHEST = 100, 599                -- of a status
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

local function status_of(value)
  if value == nil then return 200 end
  local number = tonumber(value)
  if not number or number ~= number then error(format("status must be a number, got %s", tostring(value)), 0) end
  return number < LOWEST and LOWEST or number > HIGHEST and HIGHEST or floor(number)
end

local function text_of(value)
  if math_type(value) == "float" then value = tointeger(value) or value end
  return tostring(value)
end

local PLAIN = { string = true, number = true, boolean = true }

local function headers_of(values)
  local headers = {}
  if values ~= nil and type(values) ~= "table" then error(format("headers must be a table, got %s", type(values)), 0) end
  for name, value in next, values or headers do
    if not PLAIN[type(value)] then error(format("the header %s must be text, got %s", tostring(name), type(value)), 0) end
    headers[text_of(name)] = text_of(value)
  end
  return headers
end

local function has_type(headers)
  for name in next, headers do
    if lower(name) == "content-type" then return true end
  end
end

local function body_of(value, headers)
  if value == nil then return "" end
  if PLAIN[type(value)] then return text_of(value) end
  if type(value) ~= "table" then error(format("body must be text, a number, a boolean or a table, got %s", type(value)), 0) end
  local body = kit.use("json").encode(value)
  if not has_type(headers) then headers["Content-Type"] = "application/json" end
  return body
end

-- What a handler returned, as status, headers and body.
local function response(value)
  if value == nil then return 200, nil, "" end
  if type(value) == "string" then return 200, nil, value end
  if type(value) ~= "table" then
    error(format("a handler must return text, a table with status, body and headers, or nothing; it returned a %s",
      type(value)), 0)
  end
  local headers = headers_of(value.headers)
  local body = body_of(value.body, headers)
  return status_of(value.status), next(headers) and headers, body
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
