-- /// job
-- description = "Asks the daemon's own API which jobs there are; tries again when that fails"
-- every = "1m"
-- retries = 3
-- retry_delay = "2s"
-- ///

-- A failed run is tried again up to `retries` times, after about 2, 4 and 8 seconds (chosen at random up to these, so
-- that many jobs do not all come back at the same moment).  Each attempt is a run of its own in `spyweb runs`.

function run(ctx)
  if not engine.server_url then return "nothing to ask: the daemon runs without its server" end

  -- The key is only needed where SPYWEB_API_KEY is set.
  local response = assert_answer(http_get(engine.server_url .. "/api/jobs", { ["X-SpyWeb-Key"] = env_get("API_KEY") }))
  local jobs = assert(json_decode(response.body))
  store_set("jobs", #jobs)
  return #jobs .. " jobs"
end

-- An error ends the run as failed, with this text and the line where it happened.
function assert_answer(response, err)
  if not response then error(err.error) end
  if response.status ~= 200 then error("status " .. response.status) end
  return response
end

-- These three are called after each attempt, if they are there.

function on_success(ctx, result)
  log(result .. ", attempt " .. ctx.attempt)
end

function on_error(err, ctx)
  if ctx.final then
    log.error("given up: " .. err)
  else
    log.warn("attempt " .. ctx.attempt .. " failed, another follows: " .. err)
  end
end

function on_finally(ctx)
  log.debug(("took %d s"):format(os.time() - ctx.started_at))
end
