task({
name = "critical-update",
run = function()
-- Acquire lock with 5 minute timeout
state.lock("deployment", "task-123", 300)
-- Critical operations here
state.set("deployment:status", "in-progress")
-- Release lock
state.unlock("deployment", "task-123")
end
})
