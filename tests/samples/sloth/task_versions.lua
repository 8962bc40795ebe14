task({
name = "versioned-config",
run = function()
-- Increment version
local version = state.increment("config:version", 1)
-- Store versioned config
state.set("config:v" .. version, config_content)
-- Keep reference to current
state.set("config:current", tostring(version))
end
})
