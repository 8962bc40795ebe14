-- /// job
-- description = "Fails twice, as a service does that is just starting, and succeeds at the third attempt"
-- every = "1m"
-- retries = 3
-- retry_delay = "2s"
-- ///

-- A failed run is tried again up to `retries` times, after about 2, 4 and 8 seconds (chosen at random up to these, so
-- that many jobs do not all come back at the same moment).  Each attempt is a run of its own in `spyweb runs`.

function run(ctx)
  -- An error ends the run as failed, with this text and the line where it happened.
  if ctx.attempt < 3 then error("not ready yet") end
  return "ready"
end

-- These three are called after each attempt, if they are there.

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
