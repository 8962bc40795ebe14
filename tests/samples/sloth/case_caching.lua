-- Helper function for caching
function get_cached_data(cache_key, fetch_function, ttl)
    local cached = state.get(cache_key)
    if cached then
        log.info("Cache hit: " .. cache_key)
        return cached
    end

    log.info("Cache miss: " .. cache_key .. " - fetching...")
    local data = fetch_function()
    state.set(cache_key, data, ttl or 300) -- 5 minutes default
    return data
end

-- Usage in tasks
local fetch_user_data = task("fetch_user_data")
    :description("Fetch user data with intelligent caching")
    :command(function(this, params)
        local user_data = get_cached_data("user:123:profile", function()
            -- Simulate expensive fetch
            return {
                name = "Alice",
                email = "alice@example.com",
                preferences = {"dark_mode", "notifications"}
            }
        end, 600) -- Cache for 10 minutes

        log.info("User data: " .. data.to_json(user_data))
        return true, "User data retrieved"
    end)
    :build()

local data_processing = workflow.define("data_processing")
    :description("Data processing workflow with caching")
    :version("1.0.0")
    :tasks({
        fetch_user_data
    })
