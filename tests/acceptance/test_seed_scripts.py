"""Every sample of the documents that started the project runs as it is written there, on a real daemon.

Each is a job, its file nothing but the sample (tests/samples), and nothing is stubbed: a job beside it sets what the
sample reads, and looks at what is stored after it.  Three samples change the machine (packages, users, /etc): there the
daemon is on what looks like a machine of its own, whose apt-get, useradd and systemctl are ours and note what they are
asked.  Where a sample can't run as it is written, its test says why, and does the nearest that can.  iii's document has
lost its samples: its functions are called in tests/integration/test_state_seeds.py.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from spyweb.model import JobId, Outcome
from spyweb.views.runs import LogLine, RunEnded, RunEvent, TaskView
from tests.fakes.project import Project, eventually
from tests.fakes.values import IS
from tests.fakes.web_server import unused_port

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

SAMPLES = Path(__file__).parents[1] / "samples"
MACHINE = Path(__file__).parents[1] / "fakes/machine.sh"
OF_A_MACHINE = {"task_config_file", "task_idempotency", "task_resources"}
TEMPLATE = "[app]\nhost = {{.host}}\n"

# What a test asks of the daemon's values, in Lua.
ASKING = f"""{IS}
function run() return assert(load(values.code))() end
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    before: str = ""  # what is stored before it runs
    lines: Sequence[str] = ()  # that it logs or prints
    tasks: Sequence[str] = ()  # as they end
    after: str = ""  # what must hold then


SLOTH = {
    "module_values": Sample(
        before="state.set('old_key', 1)",
        lines=["App version is configured"],
        after="""
        is({state.get("app_version"), state.get("user_count"), state.exists("old_key")}, {"v1.2.3", 1000, false})
        is(state.get("config"), {debug = true, max_connections = 100})
        """,
    ),
    "module_ttl": Sample(
        before="state.set('user_session', 'x')",
        lines=["Token expires in 60 seconds"],
        after="assert(state.get_ttl('user_session') > 290)",
    ),
    "module_atomic": Sample(  # where nobody has set config_version it fails: see below
        before="state.set('page_views', 41) state.set('inventory', 20) state.set('config_version', 6)",
        lines=["Configuration updated safely"],
        after="""
        is({state.get("page_views"), state.get("downloads"), state.get("inventory")}, {42, 50, 15})
        is(state.get("log_messages"), "Starting application -> Connecting to database")
        is(state.get("config_version"), 7)
        """,
    ),
    "module_lists": Sample(
        lines=["Items in queue: 1", "Processing deployment: frontend"],
        after="is(state.list_length('deployment_queue'), 0)",
    ),
    "module_locks": Sample(
        lines=["Executing critical operation...", "Critical operation completed - counter: 1"],
        after="""
        is(state.get("global_counter"), 1)
        assert(math.abs(os.time() - state.get("last_operation")) < 60)
        for _, name in ipairs{"deployment_lock", "database_migration", "critical_section"} do
          is(state.is_locked(name), false)
        end
        """,
    ),
    "case_deployment": Sample(  # five seconds of it are its own sleep
        lines=["Executing deployment with lock..."],
        tasks=[
            "deployment_pipeline/prepare_deploy success Deploy preparation completed",
            "deployment_pipeline/execute_deploy success Deploy completed successfully",
        ],
        after="""
        is({state.get("last_deployed_version"), state.get("deploy_status")}, {"v1.2.3", "completed"})
        is({state.get("total_deploys"), state.list_length("deploy_history")}, {1, 1})
        local entry = state.list_pop("deploy_history")
        is(entry.version, "v1.2.3")
        assert(entry.duration >= 5, "it did not sleep")
        is(state.is_locked("deployment_lock"), false)
        """,
    ),
    "case_caching": Sample(
        lines=[
            "Cache miss: user:123:profile - fetching...",
            'User data: {"email":"alice@example.com","name":"Alice","preferences":["dark_mode","notifications"]}',
        ],
        tasks=["data_processing/fetch_user_data success User data retrieved"],
        after="assert(state.get_ttl('user:123:profile') > 590)",
    ),
    "case_rate_limit": Sample(
        before="state.set('rate_limit:api_calls', 99, 3600)",
        lines=["Making API call..."],
        tasks=["api_tasks/make_api_call success API call completed"],
        after="is(state.get('rate_limit:api_calls'), 100)",
    ),
    "case_rate_limit_in_a_table": Sample(
        lines=["Making API call..."],
        tasks=["api_tasks/make_api_call success API call completed"],
        after="is(state.get('rate_limit:api_calls'), 1) assert(state.get_ttl('rate_limit:api_calls') > 3590)",
    ),
    "task_basic": Sample(
        before="state.set('deployment:rollback', 'v1') state.set('deployment:old-version', 'v0')",
        lines=["Current version: v1.2.3", "Rollback state available"],
        tasks=["/track-deployment success "],
        after="is(state.get('deployment:version'), 'v1.2.3') is(state.exists('deployment:old-version'), false)",
    ),
    "task_locks": Sample(
        tasks=["/critical-update success "],
        after="is(state.get('deployment:status'), 'in-progress') is(state.is_locked('deployment'), false)",
    ),
    "task_with_lock": Sample(
        tasks=["/safe-update success "],
        after="is(state.get('deployment:status'), 'complete') is(state.is_locked('deployment'), false)",
    ),
    "task_idempotency": Sample(
        lines=["exec.run: apt-get install -y nginx", "Package nginx installed"],
        tasks=["/install-package success "],
        after="assert(math.abs(os.time() - tonumber(state.get('package:installed:nginx'))) < 60)",
    ),
    "task_config_file": Sample(
        before="state.set('config:hash:/etc/app/config.ini', 'an older hash')",
        lines=["Configuration updated"],
        tasks=["/update-config success "],
        after="""is(state.get("config:hash:/etc/app/config.ini"), crypto.sha256("[app]\\nhost = agent1\\n"))""",
    ),
    "task_resources": Sample(
        lines=["exec.run: useradd www-data", "exec.run: systemctl enable nginx"],
        tasks=["/setup-webserver success "],
        after="""
        is(#state.keys("*:*"), 3)
        is(state.list("service:"), {["service:nginx"] = "created"})
        """,
    ),
    # Its two agents share what is stored only where the settings say so: see below.
    "task_agents": Sample(
        lines=["Became cluster leader", "Current leader: none"],
        tasks=["/leader-election success ", "/check-leader success "],
    ),
    "task_conditional": Sample(
        before="state.set('environment:type', 'production')",
        tasks=["/conditional-deployment success "],
        after="is(state.get('deployment:replicas'), '5')",
    ),
    "task_cleanup": Sample(
        before="state.set('temporary:1', 1) state.set('temporary:2', 2) state.set('kept', 3)",
        tasks=["/cleanup-old-state success "],
        after="is(state.keys(), {'kept'})",
    ),
    "practice_check": Sample(after="is(state.get('resource:initialized'), 'true')"),
    "practice_lock": Sample(after="is(state.is_locked('resource'), false)"),
    "reference_is_locked": Sample(),  # nobody holds the lock
}

# The fault is the sample's own: a value that it reads and nobody has set.  With it, it runs.
FAULTS = {
    "module_atomic": ("", "attempt to perform arithmetic on a nil value (local 'old_version')", "", ""),
    "task_versions": (
        "state.set('config:version', 6)",
        "versioned-config: jobs/task_versions.lua:7: bad argument #2",
        "config_content = 'a = 1'",
        "is(state.get('config:v' .. state.get('config:current')), 'a = 1')",
    ),
    "practice_names": (
        "",
        "value expected, got nil",
        "checksum = crypto.sha256('text')",
        "is(#state.keys('*:*'), 3) is(state.get('config:hash:/etc/nginx/nginx.conf'), crypto.sha256('text'))",
    ),
}


class Samples:
    """A project whose jobs are samples, on a daemon."""

    def __init__(self, root: Path, names: Sequence[str], settings: str = "") -> None:
        self.project = Project(root)
        tables = [f'[jobs.{name}]\nevery = "never"\n' for name in (*names, "asking")]
        config = '[permissions]\nexec = ["*"]\nfiles = ["job", "/etc/app"]\n[values]\nhost = "agent1"\n'
        self.project.save("config.toml", settings + config + "".join(tables))
        self.project.save("jobs/asking.lua", ASKING)
        for name in names:
            self.add(name)

    def add(self, name: str, before: str = "", *, called: str = "") -> None:
        (path,) = SAMPLES.glob(f"*/{name}.lua")
        self.project.save(f"jobs/{called or name}.lua", before + path.read_text(encoding="utf-8"))

    def run(self, name: str) -> tuple[RunEnded, list[str], list[str]]:
        """Run a job; return its end, what it logged, and its tasks."""
        heard: list[RunEvent] = []
        ended = self.project.daemon_client().run_once(JobId(name), heard.append)
        lines = [event.text for event in heard if isinstance(event, LogLine)]
        tasks = [event for event in heard if isinstance(event, TaskView) and event.status != "running"]
        return ended, lines, [f"{task.workflow}/{task.task} {task.status} {task.message}" for task in tasks]

    def ask(self, code: str) -> None:
        ended = self.project.daemon_client().run_once(JobId("asking"), code=code)
        assert ended.outcome is Outcome.SUCCESS, ended.reason

    def clear(self) -> None:
        self.ask("for _, key in ipairs(state.keys()) do state.delete(key) end")


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Samples]:
    names = [name for name in (*SLOTH, *FAULTS) if name not in OF_A_MACHINE]
    made = Samples(tmp_path_factory.mktemp("samples"), list(dict.fromkeys(names)))
    with made.project.daemon():
        yield made


def can_have_a_machine() -> bool:
    asked = ["unshare", "--user", "--map-root-user", "--mount", "mount", "--rbind", "/tmp", "/mnt"]
    return bool(shutil.which("unshare")) and subprocess.run(asked, capture_output=True, check=False).returncode == 0


@dataclass(frozen=True, slots=True)
class Machine:
    samples: Samples
    root: Path

    def asked(self) -> list[str]:
        """Return what the machine's programs were asked, and forget it."""
        log = self.root / "var/asked"
        found = log.read_text().splitlines() if log.exists() else []
        log.unlink(missing_ok=True)
        return found


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    if not can_have_a_machine() or tmp_path.is_relative_to("/var"):
        pytest.skip("a daemon can't be given a machine of its own here")
    root, programs = tmp_path / "machine", tmp_path / "programs"
    programs.mkdir()
    for name in ("apt-get", "useradd", "systemctl"):
        (programs / name).write_text('#!/bin/sh\necho "${0##*/} $*" | tee -a /var/asked\n')
        (programs / name).chmod(0o755)
    (root / "etc/app").mkdir(parents=True)
    samples = Samples(tmp_path / "project", sorted(OF_A_MACHINE))
    samples.project.save("jobs/task_config_file/templates/config.ini.tmpl", TEMPLATE)
    wanted = ("unshare", "--user", "--map-root-user", "--mount", "sh", str(MACHINE), str(root), str(programs))
    samples.project.launcher = wanted
    with samples.project.daemon():
        yield Machine(samples, root)


def check(samples: Samples, name: str) -> None:
    expected = SLOTH[name]
    samples.clear()
    samples.ask(expected.before)
    ended, lines, tasks = samples.run(name)
    assert ended.outcome is Outcome.SUCCESS, ended.reason
    assert [line for line in lines if "is delegated to" not in line] == list(expected.lines)
    assert tasks == list(expected.tasks)
    samples.ask(expected.after)


def test_no_sample_is_left_out() -> None:
    assert SLOTH.keys() | FAULTS.keys() == {path.stem for path in SAMPLES.glob("sloth/*.lua")}


@pytest.mark.parametrize("name", [name for name in SLOTH if name not in OF_A_MACHINE])
def test_a_sample_runs_as_it_is_written(samples: Samples, name: str) -> None:
    check(samples, name)


@pytest.mark.parametrize("name", FAULTS)
def test_a_sample_that_reads_what_nobody_has_set_fails_there_and_runs_with_it(samples: Samples, name: str) -> None:
    before, reason, set_before, after = FAULTS[name]
    samples.clear()
    samples.ask(before)
    ended, _, _ = samples.run(name)
    assert ended.outcome is Outcome.FAILED
    assert reason in ended.reason
    if set_before:
        samples.add(name, f"{set_before}\n")
        eventually(lambda: samples.run(name)[0].outcome is Outcome.SUCCESS)
        samples.ask(after)


def test_a_lock_that_is_held_is_told_with_its_holder(samples: Samples) -> None:
    samples.clear()
    code = "state.lock('deployment', 'task-123', 300) repeat sleep(20) until state.exists('seen')"
    samples.project.save("jobs/holding.lua", f'-- /// job\n-- every = "never"\n-- ///\n{code}')
    eventually(lambda: "holding" in [view.id for view in samples.project.daemon_client().jobs()])
    samples.project.spyweb("trigger", "holding")
    eventually(lambda: samples.run("reference_is_locked")[1] == ["Locked by: task-123"])
    samples.ask("state.set('seen', true)")


def test_a_deployment_that_is_there_already_fails_and_is_not_carried_out(samples: Samples) -> None:
    samples.clear()
    samples.ask("state.set('last_deployed_version', 'v1.2.3')")
    ended, lines, tasks = samples.run("case_deployment")
    assert (ended.outcome, ended.reason) == (Outcome.FAILED, "prepare_deploy: Version already deployed (1 of 2 tasks)")
    assert lines[0] == "Version v1.2.3 already deployed"
    assert tasks == [
        "deployment_pipeline/prepare_deploy failed Version already deployed",
        "deployment_pipeline/execute_deploy skipped stopped after prepare_deploy",
    ]


@pytest.mark.parametrize("name", ["case_rate_limit", "case_rate_limit_in_a_table"])
def test_the_hundred_and_first_call_is_refused(samples: Samples, name: str) -> None:
    samples.clear()
    samples.ask("state.set('rate_limit:api_calls', 100)")
    ended, lines, tasks = samples.run(name)
    assert (ended.outcome, lines[0]) == (Outcome.FAILED, "Rate limit exceeded")
    assert tasks == ["api_tasks/make_api_call failed Rate limit exceeded"]


def test_agents_share_their_state_as_the_page_says_where_the_settings_do(tmp_path: Path) -> None:
    samples = Samples(tmp_path, ["task_agents"], "[state]\nshared_agents = true\n")
    with samples.project.daemon():
        _, lines, _ = samples.run("task_agents")
        assert [line for line in lines if "delegated" not in line] == [
            "Became cluster leader", "Current leader: agent1",
        ]  # fmt: skip


def test_packages_users_and_services_are_set_up_once(machine: Machine) -> None:
    samples = machine.samples
    check(samples, "task_idempotency")
    assert machine.asked() == ["apt-get install -y nginx"]
    _, lines, _ = samples.run("task_idempotency")
    assert lines == ["Package nginx already installed (skipping)"]

    check(samples, "task_resources")
    assert machine.asked() == ["useradd www-data", "systemctl enable nginx"]
    assert (machine.root / "var/www").is_dir()
    assert samples.run("task_resources")[0].outcome is Outcome.SUCCESS
    assert machine.asked() == []


def test_a_configuration_file_is_written_where_the_sample_says(machine: Machine) -> None:
    check(machine.samples, "task_config_file")
    written = machine.root / "etc/app/config.ini"
    assert written.read_text() == TEMPLATE  # the sample copies the template, and only hashes what is rendered
    before = written.stat().st_mtime_ns
    _, lines, _ = machine.samples.run("task_config_file")
    assert lines == ["Configuration unchanged (skipping)"]
    assert written.stat().st_mtime_ns == before
    assert not Path("/etc/app/config.ini").exists()


def test_the_commands_of_the_page_with_spywebs_name(tmp_path: Path) -> None:
    project = Samples(tmp_path, []).project
    with project.daemon():
        make = ["deployment:version=v1.2.3", "deployment:old=v1", "file:a=1"]
        for pair in make:
            project.spyweb("state", "set", *pair.split("="))
        assert "deployment:version" in project.spyweb("state", "list").stdout
        project.spyweb("state", "list", "--agent", "mariaguica")
        listed = project.spyweb("state", "list", "file").stdout
        assert "file:a" in listed
        assert "deployment" not in listed
        # its shape, a table from key to value, needs --compat: without, it is as everywhere else here
        compat = json.loads(project.spyweb("state", "list", "--output", "json", "--compat").stdout)
        assert compat["deployment:version"] == "v1.2.3"
        assert {entry["key"] for entry in json.loads(project.spyweb("state", "list", "--output", "json").stdout)} == {
            "deployment:version", "deployment:old", "file:a",
        }  # fmt: skip
        assert "v1.2.3" in project.spyweb("state", "show", "deployment:version").stdout
        shown = json.loads(project.spyweb("state", "show", "deployment:version", "--output", "json").stdout)
        assert "v1.2.3" in json.dumps(shown)
        project.spyweb("state", "delete", "deployment:version", code=None)  # asks, and nobody answers
        assert "v1.2.3" in project.spyweb("state", "show", "deployment:version").stdout
        project.spyweb("state", "delete", "deployment:version", "--yes")
        assert "deployment:version" not in project.spyweb("state", "list").stdout
        project.spyweb("state", "clear", code=None)
        assert "deployment:old" in project.spyweb("state", "list").stdout
        project.spyweb("state", "clear", "--yes")
        assert "deployment:old" not in project.spyweb("state", "list").stdout
        project.spyweb("state", "stats")


def test_spywebs_samples_count_over_runs_restarts_and_jobs(tmp_path: Path) -> None:
    names = ["shared_counter", "runtime_memory"]
    samples = Samples(tmp_path, names)
    with samples.project.daemon() as daemon:
        for count in (1, 2):
            assert samples.run("shared_counter")[0].outcome is Outcome.SUCCESS
            samples.ask(f"is(global_store_get('global_fail_count'), '{2 * count}')")
            assert samples.run("runtime_memory")[1] == [f"Session visit: {count}"]
        daemon.kill()
    with samples.project.daemon():
        samples.ask("is(global_store_get('global_fail_count'), '4')")
        assert samples.run("runtime_memory")[1] == ["Session visit: 1"]  # it is transient


def test_the_circuit_breaker_opens_at_the_eleventh_failure_by_its_own_arithmetic(tmp_path: Path) -> None:
    """On a fresh store the first five failures only lead to a reset: the cooldown counts from the epoch.

    The host that it names is not ours to ask: an address where nobody answers stands for it.
    """
    project = Samples(tmp_path, ["circuit_breaker"]).project
    path = project.root / "jobs/circuit_breaker.lua"
    nobody = f"http://127.0.0.1:{unused_port()}/status"
    path.write_text(path.read_text().replace("https://api.example.com/status", nobody))
    with project.daemon() as daemon:
        for _ in range(10):
            project.result("circuit_breaker")
        assert "circuit breaker open" not in daemon.said()
        project.result("circuit_breaker")
        eventually(lambda: "circuit breaker open" in daemon.said())  # the log is written by a thread of its own
        assert daemon.said().count("failure 5/5") == 2
        daemon.kill()
    with project.daemon() as daemon:  # it stays open over kill -9
        project.result("circuit_breaker")
        eventually(lambda: "circuit breaker open" in daemon.said())
