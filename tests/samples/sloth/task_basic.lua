task({
name = "track-deployment",
run = function()
-- Store deployment version
state.set("deployment:version", "v1.2.3")
-- Retrieve stored value
local version = state.get("deployment:version")
print("Current version: " .. version)
-- Check if key exists
if state.exists("deployment:rollback") then
print("Rollback state available")
end
-- Delete state
state.delete("deployment:old-version")
end
})
