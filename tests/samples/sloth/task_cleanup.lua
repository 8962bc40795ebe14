task({
name = "cleanup-old-state",
run = function()
-- List all states with prefix
local all_states = state.list("temporary:")
-- Clean up temporary states
for key, _ in pairs(all_states) do
state.delete(key)
end
end
})
