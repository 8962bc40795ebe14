-- Define tasks using modern DSL
local prepare_deploy = task("prepare_deploy")
    :description("Prepare deployment by checking versions and updating state")
    :command(function(this, params)
        -- Check last deployed version
        local last_version = state.get("last_deployed_version", "v0.0.0")
        local new_version = "v1.2.3"

        -- Check if already deployed
        if last_version == new_version then
            log.warn("Version " .. new_version .. " already deployed")
            return false, "Version already deployed"
        end

        -- Register deployment start
        state.set("deploy_status", "in_progress")
        state.set("deploy_start_time", os.time())
        state.increment("total_deploys", 1)

        return true, "Deploy preparation completed"
    end)
    :build()

local execute_deploy = task("execute_deploy")
    :description("Execute deployment with distributed lock")
    :depends_on("prepare_deploy")
    :command(function(this, params)
        -- Critical section for deployment
        return state.with_lock("deployment_lock", function()
            log.info("Executing deployment with lock...")

            -- Simulate deployment
            exec.run("sleep 5")

            -- Update state
            state.set("last_deployed_version", "v1.2.3")
            state.set("deploy_status", "completed")
            state.set("deploy_end_time", os.time())

            -- Record history
            state.list_push("deploy_history", {
                version = "v1.2.3",
                timestamp = os.time(),
                duration = state.get("deploy_end_time") - state.get("deploy_start_time")
            })

            return true, "Deploy completed successfully"
        end, 300) -- 5 minutes timeout
    end)
    :build()

-- Define workflow
local deployment_pipeline = workflow.define("deployment_pipeline")
    :description("Complete deployment pipeline with version control")
    :version("1.0.0")
    :tasks({
        prepare_deploy,
        execute_deploy
    })
