task({
name = "install-package",
run = function()
local package_name = "nginx"
local state_key = "package:installed:" .. package_name
-- Check if already installed
if state.exists(state_key) then
print("Package " .. package_name .. " already installed (skipping)")
return
end
-- Install package
cmd({
command = "apt-get install -y " .. package_name,
delegate_to = values.host
})
-- Track installation
state.set(state_key, tostring(os.time()))
print("Package " .. package_name .. " installed")
end
})
