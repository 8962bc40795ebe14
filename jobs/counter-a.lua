-- /// job
-- description = "Adds 1 to a counter that it shares with counter-b"
-- every = "5s"
-- ///

-- A file without a function `run` is run from top to bottom each time.
--
-- global_store_incr is atomic across all jobs: reading the number with global_store_get and writing it back with
-- global_store_set would lose an addition when both jobs do that at the same time.

local count = global_store_incr("shared_count", 0, 1)
log("counter-a made it " .. count)
