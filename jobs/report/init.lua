-- /// job
-- description = "Every minute, one line about the counters of the other sample jobs"
-- cron = "* * * * *"
-- ///

-- A job with several files is a folder with an init.lua.  `require` searches that folder first, then the project:
-- save summary.lua while the daemon runs, and the next run uses it.

local summary = require("summary")

function run(ctx)
  local previous = json_decode(store_get("previous") or "{}")
  local current = { shared = tonumber(global_store_get("shared_count") or "0") }
  store_set("previous", json_encode(current))
  local line = summary.describe(current, previous)
  log(line)
  return line
end
