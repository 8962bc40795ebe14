task({
name = "update-config",
run = function()
local config_file = "/etc/app/config.ini"
local template_src = "./templates/config.ini.tmpl"
-- Read current template
local new_content = template.render({
src = template_src,
vars = values
})
-- Calculate checksum
local new_hash = crypto.sha256(new_content)
local state_key = "config:hash:" .. config_file
-- Get stored hash
local old_hash = state.get(state_key)
if old_hash == new_hash then
print("Configuration unchanged (skipping)")
return
end
-- Deploy new configuration
file.copy({
src = template_src,
dest = config_file,
delegate_to = values.host
})
-- Update hash
state.set(state_key, new_hash)
print("Configuration updated")
end
})
