-- Protect critical operations
state.with_lock("resource", "task-id", 300, function()
-- Critical code here
end)
