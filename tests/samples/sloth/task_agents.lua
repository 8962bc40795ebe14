task({
name = "leader-election",
delegate_to = "agent1",
run = function()
-- Try to become leader
if not state.exists("cluster:leader") then
state.set("cluster:leader", "agent1")
print("Became cluster leader")
end
end
})
task({
name = "check-leader",
delegate_to = "agent2",
run = function()
local leader = state.get("cluster:leader")
print("Current leader: " .. (leader or "none"))
end
})
