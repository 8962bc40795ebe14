local locked, holder = state.is_locked("deployment")
if locked then
print("Locked by: " .. holder)
end
