-- /// job
-- description = "Fails when a page does not answer; after 5 failures in a row it waits for 5 minutes."
-- every = "1m"
-- timeout = "20s"
-- ///

local URL = "https://example.com/"
local MAX_FAILURES, COOLDOWN = 5, 300 -- seconds

function run()
  local opened_at = tonumber(store_get("opened_at") or "0")
  local left = opened_at + COOLDOWN - os.time()
  if left > 0 then
    return skip("open: next request in " .. left .. " s") -- neither success nor failure
  end

  local response, err = http_get(URL)
  if response and response.status < 400 then
    store_set("failures", 0)
    return "status " .. response.status
  end

  local failures = tonumber(store_get("failures") or "0") + 1
  store_set("failures", failures)
  if failures >= MAX_FAILURES then store_set("opened_at", os.time()) end
  return nil, URL .. ": " .. (response and "status " .. response.status or err.error) -- a failed run, and why
end
