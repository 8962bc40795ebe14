-- /// job
-- description = "Counts its runs twice: in memory, and in the store"
-- every = "15s"
-- ///

-- A global lives as long as the job's VM: it starts again at 1 when this file is saved or the daemon restarted.
-- A stored value survives both.  Save this file while the daemon runs, and compare.

visit_count = (visit_count or 0) + 1
local total = tonumber(store_get("total") or "0") + 1
store_set("total", total)

log("Session visit: " .. visit_count .. ", in all: " .. total)
