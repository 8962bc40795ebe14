-- /// job
-- description = "Requests an address; after 5 failures in a row it waits for a minute"
-- every = "10s"
-- timeout = "15s"
-- ///

-- A circuit breaker with three states.  Each change is stored, so that the state survives a restart or a crash:
--   closed       each run sends a request; failures in a row are counted, a success resets the count
--   open         no request is sent until the cooldown, counted from the time of opening, has passed
--   half open    one run sends a request: a success closes the breaker, a failure opens it for another cooldown
--
-- SPYWEB_CHECK_URL, in the environment of the daemon, is the address; without it each run is skipped.

local MAX_FAILURES = 5 -- in a row
local COOLDOWN = 60 -- seconds

-- A response may have any status; there is an error only when no response came.
local function ask(url)
  local response, err = http_get(url)
  if not response then return false, err.kind .. ": " .. err.error end
  if response.status ~= 200 then return false, "status " .. response.status end
  return true, response.time_ms .. " ms"
end

local function close()
  if tonumber(store_get("failures") or "0") == 0 then return end
  store_delete("failures")
  store_delete("opened_at")
  log("it answers again")
end

local function count_failure(now)
  local failures = tonumber(store_get("failures") or "0") + 1
  store_set("failures", failures)
  if failures >= MAX_FAILURES then
    store_set("opened_at", now)
    log.warn("open for " .. COOLDOWN .. " s after " .. failures .. " failures in a row")
  end
end

function run(ctx)
  local url = env_get("CHECK_URL")
  if not url then return skip("no address: start the daemon with SPYWEB_CHECK_URL=https://…") end

  local now = os.time()
  local opened_at = tonumber(store_get("opened_at") or "0")
  if now - opened_at < COOLDOWN then
    return skip("open: next request in " .. (opened_at + COOLDOWN - now) .. " s") -- neither success nor failure
  end

  local ok, message = ask(url)
  if not ok then
    count_failure(now)
    return nil, message -- nil and a message: the run counts as failed, with this reason
  end
  close()
  return message
end
