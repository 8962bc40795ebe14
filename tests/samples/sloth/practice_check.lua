-- Always check existence before operations
if not state.exists("resource:initialized") then
-- Initialize resource
state.set("resource:initialized", "true")
end
