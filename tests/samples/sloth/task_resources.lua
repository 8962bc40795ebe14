task({
name = "setup-webserver",
run = function()
local resources = {
{type = "user", name = "www-data"},
{type = "dir", name = "/var/www"},
{type = "service", name = "nginx"}
}
for _, res in ipairs(resources) do
local state_key = res.type .. ":" .. res.name
if not state.exists(state_key) then
-- Create resource based on type
if res.type == "user" then
cmd({command = "useradd " .. res.name})
elseif res.type == "dir" then
cmd({command = "mkdir -p " .. res.name})
elseif res.type == "service" then
cmd({command = "systemctl enable " .. res.name})
end
-- Mark as created
state.set(state_key, "created")
end
end
end
})
