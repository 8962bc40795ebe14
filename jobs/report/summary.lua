-- A module: what it returns is what `require` gives.

local summary = {}

function summary.describe(current, previous)
  local change = current.shared - (previous.shared or 0)
  return ("shared counter: %d (%+d)"):format(current.shared, change)
end

return summary
