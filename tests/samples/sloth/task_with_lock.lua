task({
name = "safe-update",
run = function()
-- Automatically manages lock lifecycle
state.with_lock("deployment", "task-123", 300, function()
-- Operations inside lock
state.set("deployment:status", "updating")
-- ... perform update ...
state.set("deployment:status", "complete")
end)
end
})
