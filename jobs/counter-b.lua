-- /// job
-- description = "Adds 10 to a counter that it shares with counter-a"
-- every = "7s"
-- ///

-- With a function `run`, the file itself runs once, when it is loaded; after that only the function is called.

local STEP = 10

function run(ctx)
  local count = global_store_incr("shared_count", 0, STEP)
  log("counter-b made it " .. count)
  return count
end
