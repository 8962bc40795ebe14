task({
name = "conditional-deployment",
run = function()
local env = state.get("environment:type") or "development"
if env == "production" then
-- Production-specific logic
state.set("deployment:replicas", "5")
else
-- Development logic
state.set("deployment:replicas", "1")
end
end
})
