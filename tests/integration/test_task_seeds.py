"""Every sample of sloth-runner's documents that declares tasks runs as it is written, by our own `task` and `workflow`.

Only commands are stubs before it, and what it reads is set beforehand.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from spyweb.model import Outcome, TaskRow
from spyweb.ops.managed import ManagedFiles, ManagedPlace
from spyweb.permissions.policy import FilesRule, Grants, policy_of
from spyweb.settings import StateSettings
from tests.fakes.scripts import Scripts, open_scripts

SAMPLES = Path(__file__).parents[1] / "samples" / "sloth"

MODULES = """
commands = {}
exec = { run = function(command) commands[#commands + 1] = command sleep(5) end }
function cmd(spec) commands[#commands + 1] = spec.command end
values = { host = "agent1" }
config_content = "a = 1"
local function same(a, b)
  if type(a) ~= "table" or type(b) ~= "table" then return a == b end
  for k, v in pairs(a) do if not same(v, b[k]) then return false end end
  for k in pairs(b) do if a[k] == nil then return false end end
  return true
end
function is(a, b) if not same(a, b) then error(dump(a) .. " is not " .. dump(b), 2) end end
"""

# the sample: what is set before its run, how its tasks end, what must hold after it
CASES: dict[str, tuple[str, list[str], str]] = {
    "case_deployment": (
        "",
        [
            "deployment_pipeline/prepare_deploy success Deploy preparation completed",
            "deployment_pipeline/execute_deploy success Deploy completed successfully",
        ],
        """
        is({state.get("last_deployed_version"), state.get("deploy_status")}, {"v1.2.3", "completed"})
        is({state.get("total_deploys"), state.list_length("deploy_history")}, {1, 1})
        is(state.list_pop("deploy_history").version, "v1.2.3")
        is(state.is_locked("deployment_lock"), false)
        is(commands, {"sleep 5"})
        """,
    ),
    "case_caching": (
        "",
        ["data_processing/fetch_user_data success User data retrieved"],
        """
        is(state.get("user:123:profile").preferences, {"dark_mode", "notifications"})
        is(state.get_ttl("user:123:profile"), 600)
        """,
    ),
    "case_rate_limit": (
        "",
        ["api_tasks/make_api_call success API call completed"],
        "is(state.get('rate_limit:api_calls'), 1)",
    ),
    "case_rate_limit_in_a_table": (
        "state.set('rate_limit:api_calls', 99)",
        ["api_tasks/make_api_call success API call completed"],
        "is(state.get('rate_limit:api_calls'), 100)",
    ),
    "task_basic": (
        "state.set('deployment:rollback', 'v1') state.set('deployment:old-version', 'v0')",
        ["/track-deployment success "],
        "is(state.get('deployment:version'), 'v1.2.3') is(state.exists('deployment:old-version'), false)",
    ),
    "task_locks": (
        "",
        ["/critical-update success "],
        "is(state.get('deployment:status'), 'in-progress') is(state.is_locked('deployment'), false)",
    ),
    "task_with_lock": (
        "",
        ["/safe-update success "],
        "is(state.get('deployment:status'), 'complete') is(state.is_locked('deployment'), false)",
    ),
    "task_idempotency": (
        "",
        ["/install-package success "],
        """
        is(commands, {"apt-get install -y nginx"})
        assert(math.abs(os.time() - tonumber(state.get("package:installed:nginx"))) < 60)
        """,
    ),
    "task_config_file": (
        "state.set('config:hash:/etc/app/config.ini', 'an older hash')",
        ["/update-config success "],
        """
        is(state.get("config:hash:/etc/app/config.ini"), crypto.sha256("[app]\\nhost = agent1\\n"))
        is(file.stat{path = "/etc/app/config.ini"}.size, 23)
        """,
    ),
    "task_resources": (
        "state.set('dir:/var/www', 'created')",
        ["/setup-webserver success "],
        """
        is(commands, {"useradd www-data", "systemctl enable nginx"})
        is(state.list("service:"), {["service:nginx"] = "created"})
        """,
    ),
    "task_agents": ("", ["/leader-election success ", "/check-leader success "], ""),
    "task_conditional": (
        "state.set('environment:type', 'production')",
        ["/conditional-deployment success "],
        "is(state.get('deployment:replicas'), '5')",
    ),
    "task_versions": (
        "state.set('config:version', '6')",
        ["/versioned-config success "],
        'is({state.get("config:version"), state.get("config:current"), state.get("config:v7")}, {7, "7", "a = 1"})',
    ),
    "task_cleanup": (
        "state.set('temporary:1', 1) state.set('temporary:2', 2) state.set('kept', 3)",
        ["/cleanup-old-state success "],
        "is(state.keys(), {'kept'})",
    ),
}


TEMPLATE = "[app]\nhost = {{.host}}\n"


class RelocatedFiles(ManagedFiles):
    """Puts /etc into a folder of the test."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder

    @contextmanager
    def _root(self, place: ManagedPlace, *, make: bool = False) -> Iterator[int | None]:
        top = f"{self._folder}{place.top}" if place.top.startswith("/etc") else place.top
        with super()._root(replace(place, top=top), make=make) as folder:
            yield folder


@pytest.fixture
async def scripts(tmp_path: Path) -> AsyncIterator[Scripts]:
    """Scripts of a job that may write /etc/app, and has the template that the samples name."""
    for folder in ("etc/app", "jobs/a/templates"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "jobs/a/templates/config.ini.tmpl").write_text(TEMPLATE)
    async with open_scripts(tmp_path, workers=1) as scripts:
        scripts.world = replace(scripts.world, managed=RelocatedFiles(tmp_path))
        scripts.policy = policy_of(Grants(files=FilesRule(frozenset({"job"}), ("/etc/app",))))
        yield scripts


def sample(name: str) -> str:
    return (SAMPLES / f"{name}.lua").read_text(encoding="utf-8")


async def perform(scripts: Scripts, source: str) -> tuple[Outcome, str, list[str]]:
    run = await scripts.begin("a")
    ending = await scripts.live_through(run, source, "a")
    rows = (await scripts.store.tasks.of_runs([run])).get(run, ())
    return ending.outcome, ending.reason, told(rows)


def told(rows: Sequence[TaskRow]) -> list[str]:
    return [f"{row.workflow}/{row.name} {row.status} {row.message}" for row in rows]


def test_no_sample_with_tasks_is_left_out() -> None:
    names = {path.stem for path in SAMPLES.glob("*.lua")}
    assert CASES.keys() == {name for name in names if name.startswith(("case", "task"))}


@pytest.mark.parametrize("name", CASES)
async def test_a_sample_runs_as_it_is_written(scripts: Scripts, name: str) -> None:
    before, ends, after = CASES[name]
    await scripts.succeed(f"{before} return true", "before")

    found = await perform(scripts, f"{MODULES}\n{sample(name)}\nfunction on_success() {after} end")

    assert found == (Outcome.SUCCESS, "", ends)
    assert scripts.texts("error") == []


async def test_the_configuration_of_the_sample_is_written_where_it_says(scripts: Scripts, tmp_path: Path) -> None:
    for expected in ("Configuration updated", "Configuration unchanged (skipping)"):
        assert (await perform(scripts, MODULES + sample("task_config_file")))[0] is Outcome.SUCCESS
        assert (tmp_path / "etc/app/config.ini").read_text() == TEMPLATE
        assert scripts.texts("print")[-1] == expected


async def test_what_the_sample_logs_is_json(scripts: Scripts) -> None:
    await perform(scripts, MODULES + sample("case_caching"))
    assert scripts.texts("info")[-1] == (
        'User data: {"email":"alice@example.com","name":"Alice","preferences":["dark_mode","notifications"]}'
    )


async def test_a_deployment_that_is_there_already_fails_and_is_not_carried_out(scripts: Scripts) -> None:
    await perform(scripts, MODULES + sample("case_deployment"))
    assert await perform(scripts, MODULES + sample("case_deployment")) == (
        Outcome.FAILED,
        "1 of 2 tasks failed: prepare_deploy",
        [
            "deployment_pipeline/prepare_deploy failed Version already deployed",
            "deployment_pipeline/execute_deploy skipped stopped after prepare_deploy",
        ],
    )


async def test_the_hundred_and_first_call_is_refused(scripts: Scripts) -> None:
    for name in ("case_rate_limit", "case_rate_limit_in_a_table"):
        await scripts.succeed("state.set('rate_limit:api_calls', 100) return true", "before")
        outcome, _, ends = await perform(scripts, MODULES + sample(name))
        assert (outcome, ends) == (Outcome.FAILED, ["api_tasks/make_api_call failed Rate limit exceeded"])


@pytest.mark.parametrize(("shared", "leader"), [(True, "agent1"), (False, "none")])
async def test_agents_share_their_state_where_the_settings_say_so(tmp_path: Path, shared: bool, leader: str) -> None:
    async with open_scripts(tmp_path, workers=1, state=StateSettings(shared_agents=shared)) as scripts:
        await perform(scripts, MODULES + sample("task_agents"))
        assert scripts.texts("print") == ["Became cluster leader", f"Current leader: {leader}"]
