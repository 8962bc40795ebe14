"""Every sample of sloth-runner's documents that is about state runs as a script job, as it is written there.

The samples are in tests/samples/sloth, their flattened text reflowed.  What a sample leaves to other families of that
program (`task`, `cmd`, ...) is a stub before it, and what it reads is set beforehand; test_task_seeds.py runs the same
tasks as tasks.  iii's document has lost its samples: its functions are called one after another.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.fakes.scripts import Scripts, open_scripts

SAMPLES = Path(__file__).parents[1] / "samples" / "sloth"

# A task with a table runs at once, one with a name when it is built; what it gave is in `results`.
STUBS = """
results, commands, copied = {}, {}, {}
local function note(...) results[#results + 1] = table.pack(...) end
local builder = {}
builder.__index = builder
function builder:description() return self end
function builder:version() return self end
function builder:depends_on() return self end
function builder:tasks(list) self.list = list return self end
function builder:command(f) self.f = f return self end
function builder:build() note(self.f(self, {})) return self end
function task(spec)
  if type(spec) == "string" then return setmetatable({ name = spec }, builder) end
  note(spec.run())
end
workflow = { define = function(name) return setmetatable({ name = name }, builder) end }
exec = { run = function(command) commands[#commands + 1] = command sleep(5) end }
function cmd(spec) commands[#commands + 1] = spec.command end
file = { copy = function(spec) copied[#copied + 1] = spec.dest end }
template = { render = function(spec) return "content of " .. spec.src end }
crypto = { sha256 = function(text) return "hash of " .. text end }
data = { to_json = json_encode }
values = { host = "agent1" }
config_content, checksum = "a = 1", "abc"
local function same(a, b)
  if type(a) ~= "table" or type(b) ~= "table" then return a == b end
  for k, v in pairs(a) do if not same(v, b[k]) then return false end end
  for k in pairs(b) do if a[k] == nil then return false end end
  return true
end
function is(a, b) if not same(a, b) then error(dump(a) .. " is not " .. dump(b), 2) end end
"""

# the sample: what is set before it, what must hold after it (where it can see the sample's locals)
CASES: dict[str, tuple[str, str]] = {
    "module_values": (
        "state.set('old_key', 1)",
        """
        is({version, count, theme}, {"v1.2.3", 1000, "dark"})
        is(config, {debug = true, max_connections = 100})
        is(state.exists("old_key"), false)
        """,
    ),
    "module_ttl": (
        "state.set('user_session', 'x')",
        "is(ttl, 60) is(state.get_ttl('user_session'), 300)",
    ),
    "module_atomic": (
        "state.set('page_views', 41) state.set('inventory', 20) state.set('config_version', 6)",
        """
        is({counter, bulk_counter, remaining, new_length, success}, {42, 50, 15, 46, true})
        is(#state.get("log_messages"), 46)
        is(state.get("config_version"), 7)
        """,
    ),
    "module_lists": (
        "",
        "is(queue_size, 1) is(state.list_length('deployment_queue'), 0)",
    ),
    "module_locks": (
        "",
        """
        is({lock_acquired, acquired}, {true, true})
        is(state.get("global_counter"), 1)
        assert(math.abs(os.time() - state.get("last_operation")) < 60)
        for _, name in ipairs{"deployment_lock", "database_migration", "critical_section"} do
          is(state.is_locked(name), false)
        end
        """,
    ),
    "case_deployment": (
        "",
        """
        is(results[1][2], "Deploy preparation completed")
        is({results[2][1], results[2][2]}, {true, "Deploy completed successfully"})
        is({state.get("last_deployed_version"), state.get("deploy_status")}, {"v1.2.3", "completed"})
        is({state.get("total_deploys"), state.list_length("deploy_history")}, {1, 1})
        is(state.list_pop("deploy_history").version, "v1.2.3")
        is(state.is_locked("deployment_lock"), false)
        is(commands, {"sleep 5"})
        """,
    ),
    "case_caching": (
        "",
        """
        is(results[1][2], "User data retrieved")
        is(state.get("user:123:profile").preferences, {"dark_mode", "notifications"})
        is(state.get_ttl("user:123:profile"), 600)
        is(get_cached_data("user:123:profile", error).name, "Alice")
        """,
    ),
    "case_rate_limit": (
        "",
        """
        is(results[1][2], "API call completed")
        for _ = 2, 100 do assert(check_rate_limit("api_calls", 100, 3600)) end
        local allowed, message = check_rate_limit("api_calls", 100, 3600)
        is({allowed, message}, {false, "Rate limit exceeded"})
        assert(state.get_ttl("rate_limit:api_calls") > 3500)
        """,
    ),
    "case_rate_limit_in_a_table": (
        "",
        """
        local call = ModernDSLs.api_tasks.tasks.make_api_call.command
        for _ = 1, 100 do assert(call()) end
        local allowed, message = call()
        is({allowed, message}, {false, "Rate limit exceeded"})
        ModernDSLs = nil  -- run as the task that it is by test_task_seeds.py
        """,
    ),
    "task_basic": (
        "state.set('deployment:rollback', 'v1') state.set('deployment:old-version', 'v0')",
        "is(state.get('deployment:version'), 'v1.2.3') is(state.exists('deployment:old-version'), false)",
    ),
    "task_locks": ("", "is(state.get('deployment:status'), 'in-progress') is(state.is_locked('deployment'), false)"),
    "task_with_lock": ("", "is(state.get('deployment:status'), 'complete') is(state.is_locked('deployment'), false)"),
    "task_idempotency": (
        "",
        """
        is(commands, {"apt-get install -y nginx"})
        assert(math.abs(os.time() - tonumber(state.get("package:installed:nginx"))) < 60)
        """,
    ),
    "task_config_file": (
        "state.set('config:hash:/etc/app/config.ini', 'an older hash')",
        """
        is(copied, {"/etc/app/config.ini"})
        is(state.get("config:hash:/etc/app/config.ini"), "hash of content of ./templates/config.ini.tmpl")
        """,
    ),
    "task_resources": (
        "state.set('dir:/var/www', 'created')",
        """
        is(commands, {"useradd www-data", "systemctl enable nginx"})
        is(state.list("service:"), {["service:nginx"] = "created"})
        """,
    ),
    "task_agents": ("", "is(state.get('cluster:leader'), 'agent1')"),
    "task_conditional": ("state.set('environment:type', 'production')", "is(state.get('deployment:replicas'), '5')"),
    "task_versions": (
        "state.set('config:version', '6')",
        """
        is({state.get("config:version"), state.get("config:current"), state.get("config:v7")}, {7, "7", "a = 1"})
        """,
    ),
    "task_cleanup": (
        "state.set('temporary:1', 1) state.set('temporary:2', 2) state.set('kept', 3)",
        "is(state.keys(), {'kept'})",
    ),
    "practice_names": ("", "is(#state.keys('*:*'), 3) is(state.get('config:hash:/etc/nginx/nginx.conf'), 'abc')"),
    "practice_check": ("", "is(state.get('resource:initialized'), 'true')"),
    "practice_lock": ("", "is(state.is_locked('resource'), false)"),
    "reference_is_locked": ("state.lock('deployment', 'task-123', 300)", "is({locked, holder}, {true, 'task-123'})"),
}


@pytest.fixture
async def scripts(tmp_path: Path) -> AsyncIterator[Scripts]:
    async with open_scripts(tmp_path) as scripts:
        yield scripts


def test_no_sample_is_left_out() -> None:
    assert CASES.keys() == {path.stem for path in SAMPLES.glob("*.lua")}


@pytest.mark.parametrize("name", CASES)
async def test_a_sample_runs_as_it_is_written(scripts: Scripts, name: str) -> None:
    before, after = CASES[name]
    sample = (SAMPLES / f"{name}.lua").read_text(encoding="utf-8")
    await scripts.succeed(f"{STUBS}\n{before}\n{sample}\n{after}")
    assert not scripts.texts("warn")


async def test_samples_do_what_they_should_when_run_again(scripts: Scripts) -> None:
    sample = {name: (SAMPLES / f"{name}.lua").read_text(encoding="utf-8") for name in CASES}
    for name in ("task_idempotency", "task_config_file", "task_resources", "practice_check"):
        await scripts.succeed(STUBS + sample[name])
        await scripts.succeed(f"{STUBS}{sample[name]} is({{#commands, #copied}}, {{0, 0}})")
    await scripts.succeed(STUBS + sample["case_deployment"])
    again = "is({results[1][1], results[1][2]}, {false, 'Version already deployed'})"
    await scripts.succeed(STUBS + sample["case_deployment"] + again)


async def test_a_lock_that_another_has_makes_the_sample_say_so(scripts: Scripts) -> None:
    sample = (SAMPLES / "task_with_lock.lua").read_text(encoding="utf-8")
    before = "coroutine.wrap(function() state.lock('deployment', 'task-9', 300) end)()"
    await scripts.succeed(f"{STUBS}{before} {sample} is(state.get('deployment:status'), nil)")
    assert len(scripts.texts("warn")) == 1
    assert "as 'task-9'" in scripts.texts("warn")[0]


async def test_the_samples_of_two_agents_share_nothing_and_those_of_one_do(scripts: Scripts) -> None:
    sample = (SAMPLES / "task_agents.lua").read_text(encoding="utf-8")
    await scripts.succeed(STUBS + sample, agent="agent1")
    await scripts.succeed(f"{STUBS}is(state.get('cluster:leader'), 'agent1')", "other", agent="agent1")
    await scripts.succeed(f"{STUBS}is(state.get('cluster:leader'), nil)", agent="agent2")


async def test_iiis_functions_one_after_another(scripts: Scripts) -> None:
    await scripts.succeed(
        STUBS
        + """
        local users = "users"
        is(state.set{scope = users, key = "user_123", value = {name = "Alice", visits = 1}},
           {new_value = {name = "Alice", visits = 1}})
        is(state.get{scope = users, key = "user_123"}.name, "Alice")
        local result = state.update{scope = users, key = "user_123", ops = {
          {type = "set", path = "name", value = "Bob"},
          {type = "increment", path = "visits", by = 2},
          {type = "decrement", path = "left", by = 1},
          {type = "merge", path = {"settings", "ui"}, value = {theme = "dark"}},
          {type = "append", path = "log", value = {at = 1}},
          {type = "remove", path = "nothing"},
          {type = "increment", path = "name", by = 1},
        }}
        is(result.old_value, {name = "Alice", visits = 1})
        local new = {name = "Bob", visits = 3, left = -1, settings = {ui = {theme = "dark"}}, log = {{at = 1}}}
        is(result.new_value, new)
        is({#result.errors, result.errors[1].op_index, result.errors[1].code}, {1, 6, "increment.not_number"})
        state.set{scope = "config", key = "app_settings", value = {debug = true}}
        state.set{scope = "cache", key = "page", value = "x", ttl = 60}
        is(state.list{scope = users}, {new})
        is(state.list_groups(), {groups = {"cache", "config", "users"}})
        is(state.delete{scope = users, key = "user_123"}, new)
        is(state.list_groups(), {groups = {"cache", "config"}})
        """
    )
