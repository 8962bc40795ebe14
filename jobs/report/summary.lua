-- A module: `require` returns the table that this file returns.

local summary = {}

function summary.describe(current, previous)
  local change = current.shared - (previous.shared or 0)
  return ("shared counter: %d (%+d)"):format(current.shared, change)
end

return summary
