-- /// job
-- description = "Fails twice, like a service that is still starting, and succeeds at the third attempt"
-- every = "1m"
-- retries = 3
-- retry_delay = "2s"
-- ///

-- A failed run is retried up to `retries` times, after at most 2, 4 and 8 seconds (each delay is random, so that many
-- jobs do not retry at the same moment).  Each attempt is a separate run in `spyweb runs`.

function run(ctx)
  -- An error ends the run as failed, with this text and the line where it happened.
  if ctx.attempt < 3 then error("not ready yet") end
  return "ready"
end

-- Each of these three functions is optional and called after an attempt.

function on_success(ctx)
  log("it is ready, attempt " .. ctx.attempt)
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
