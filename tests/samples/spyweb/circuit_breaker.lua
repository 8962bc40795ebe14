-- Circuit breaker: stop after 5 consecutive failures, reset after 300s cooldown
local max_failures = 5
local cooldown = 300
local last_reset = tonumber(store_get("breaker_last_reset") or "0")

if tonumber(store_get("breaker_failures") or "0") >= max_failures then
 if os.time() - last_reset < cooldown then
 log("circuit breaker open - skipping request")
 return
 end
 store_set("breaker_failures", "0")
 store_set("breaker_last_reset", tostring(os.time()))
end

local ok, err = http_get("https://api.example.com/status")
if not ok then
 local count = tonumber(store_get("breaker_failures") or "0") + 1
 store_set("breaker_failures", tostring(count))
 log("failure " .. count .. "/" .. max_failures .. ": " .. tostring(err.error))
end
