-- Try to acquire lock (no waiting)
local lock_acquired = state.try_lock("deployment_lock", 30) -- 30 seconds TTL
if lock_acquired then
    -- Critical work
    state.unlock("deployment_lock")
end

-- Lock with wait and timeout
local acquired = state.lock("database_migration", 60) -- wait up to 60s
if acquired then
    -- Execute migration
    state.unlock("database_migration")
end

-- Critical section with automatic lock management
state.with_lock("critical_section", function()
    log.info("Executing critical operation...")

    -- Update global counter
    local counter = state.increment("global_counter", 1)

    -- Update timestamp
    state.set("last_operation", os.time())

    log.info("Critical operation completed - counter: " .. counter)

    -- Lock is automatically released when function returns
    return "operation_success"
end, 15) -- 15 second timeout
