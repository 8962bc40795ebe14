-- /// job
-- description = "Every night, writes down how far the shared counter came during the day"
-- cron = "30 2 * * *"
-- timezone = "Europe/Berlin"
-- misfire = "once"
-- ///

-- cron means local time in the timezone.  In the night when clocks go forward there is no 02:30: the job runs right after
-- the gap; in the night when they go back there are two: the job runs once.
--
-- misfire = "once" is the default: when the machine was off at 02:30, the job runs at the next start.

function run(ctx)
  local count = tonumber(global_store_get("shared_count") or "0")
  local before = tonumber(store_get("last_count") or "0")
  store_set("last_count", count)

  -- A run started manually (`spyweb run nightly`) has no due time.
  local due = ctx.scheduled_at or ctx.started_at
  local day = os.date("%Y-%m-%d", due)
  log(day .. ": " .. (count - before) .. " since the last time")
  return { day = day, grown_by = count - before }
end
