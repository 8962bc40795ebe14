-- WRONG (race condition prone across concurrent jobs)
local v = tonumber(global_store_get("global_fail_count") or "0")
global_store_set("global_fail_count", tostring(v + 1))

-- CORRECT (race condition safe atomic increment)
local new_count = global_store_incr("global_fail_count", 0, 1)
