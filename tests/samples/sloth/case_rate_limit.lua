function check_rate_limit(identifier, max_requests, window_seconds)
    local key = "rate_limit:" .. identifier
    local current_count = state.get(key, 0)

    if current_count >= max_requests then
        return false, "Rate limit exceeded"
    end

    -- Increment counter
    if current_count == 0 then
        -- First request in window
        state.set(key, 1, window_seconds)
    else
        -- Increment existing counter
        state.increment(key, 1)
    end

    return true, "Request allowed"
end

-- Usage in tasks
local make_api_call = task("make_api_call")
    :description("Make API call with rate limiting")
    :command(function(this, params)
        local allowed, msg = check_rate_limit("api_calls", 100, 3600) -- 100 calls/hour

        if not allowed then
            log.error(msg)
            return false, msg
        end

        -- Make API call
        log.info("Making API call...")
        return true, "API call completed"
    end)
    :build()

local api_tasks = workflow.define("api_tasks")
    :description("API tasks workflow with rate limiting")
    :version("1.0.0")
    :tasks({
        make_api_call
    })
