-- /// job
-- description = "Counts its runs, across restarts and edits."
-- every = "30s"
-- ///

function run(ctx)
  local runs = tonumber(store_get("runs") or "0") + 1
  store_set("runs", runs)
  log("hello from run " .. runs .. ", started by " .. ctx.trigger.type)
  return runs
end
