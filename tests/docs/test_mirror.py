"""The tests mirror the source: each module has a test file, and each unit test file has its module.

`spyweb/a/b.py` (or b.lua) is met by `tests/unit/a/test_b.py`, or by several that begin with its name
(`test_b_limits.py`).  What is tested elsewhere is listed here, with where: the list is meant to be read, and to shrink.
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from tests.fakes.repository import ROOT

# where it is tested → the modules
TESTED_ELSEWHERE: dict[str, tuple[str, ...]] = {
    "tests/docs/test_errors.py": ("errors",),
    "tests/unit/fakes/test_clock.py": ("clock",),  # the fake's promises; the real one only hands through
    "tests/unit/specs/test_parse.py": ("model",),
    "tests/unit/store/test_contract.py": ("store/protocol",),
    # What holds for every kind of store is tested on all of them.
    "tests/unit/store/test_state_contract.py": ("store/values_protocol",),
    "tests/unit/store/test_locks_contract.py": ("store/sqlite/locks",),
    "tests/unit/store/test_records_contract.py": ("store/records_protocol",),
    "tests/unit/store/test_outbox_contract.py": ("store/outbox_protocol",),
    "tests/unit/store/test_tasks_contract.py": ("store/tasks_protocol",),
    "tests/unit/store/test_requests_contract.py": ("store/sqlite/requests",),
    "tests/unit/service/test_access.py": ("views/keys",),
    "tests/unit/service/test_incidents.py": ("views/incidents",),
    "tests/unit/store/test_keys_contract.py": ("store/keys_protocol", "store/sqlite/keys"),
    "tests/unit/store/test_audit_contract.py": ("store/audit_protocol", "store/sqlite/audit"),
    "tests/unit/store/test_incidents_contract.py": ("store/incidents_protocol",),
    "tests/unit/store/test_notices_contract.py": ("store/notices_protocol",),
    "tests/unit/store/test_past_runs_contract.py": ("store/past_runs_protocol",),
    "tests/integration/test_tasks.py": ("lua/worker/runtime/workflows",),
    "tests/acceptance/test_tasks.py": (
        "cli/artifacts",
        "lua/worker/library/given", "lua/worker/runtime/plan"),
    "tests/unit/store/sqlite/test_vault.py": ("store/sqlite/rotation",),
    "tests/unit/service/test_drift.py": ("ops/drift", "views/drift"),
    "tests/integration/test_drift.py": ("cli/drift",),
    "tests/integration/test_workflows.py": ("cli/state/workflow",),
    "tests/unit/service/test_workflows.py": ("views/workflows",),
    "tests/unit/store/user_sql/test_user_db.py": ("store/user_sql/session",),
    "tests/unit/store/user_sql/test_spawner.py": ("store/user_sql/wire",),
    # A stage only makes sense in its cycle, a cycle in its run.
    "tests/unit/monitor/test_cycle.py": (
        "monitor/context", "monitor/stages/extract", "monitor/stages/fetch",
    ),
    "tests/unit/lua/test_pool.py": ("lua/session", "lua/supervisor"),
    # A command is a thin layer: each is typed for real, with and without a daemon.
    "tests/integration/test_cli_offline.py": ("cli/offline", "cli/options", "cli/project", "cli/steer"),
    "tests/integration/test_cli_process.py": ("daemon/options",),
    "tests/integration/test_cli_online.py": ("cli/health",),
    "tests/integration/test_state_commands.py": (
        "cli/state/locks", "cli/state/look", "cli/state/options", "cli/state/rekey",
        "cli/state/remote", "cli/state/source", "views/state",
    ),
    "tests/integration/test_move_from_spyweb.py": ("cli/state/bring_spyweb",),
    "tests/integration/test_state_process.py": ("cli/state/watch",),
    "tests/integration/test_lua_tests.py": ("daemon/testing_server",),
    "tests/docs/test_api.py": ("web/api/reference",),
    "tests/docs/test_reference.py": ("reference/hooks", "reference/language", "reference/tables"),
    "tests/integration/test_web_serve.py": ("web/api/keys", "web/serve"),
    "tests/integration/test_event_streams.py": ("web/api/events",),
    "tests/integration/test_live_pages.py": ("web/live",),
    "tests/unit/cli/test_main.py": ("cli/about",),
    "tests/unit/cli/test_keys.py": ("cli/keys_source",),
    # The process that speaks to Apprise changes all of requests: only services that it sends to can tell what it does.
    "tests/integration/test_alert_services.py": (
        "alerts/sender/helper", "alerts/sender/wire", "alerts/sender/worker/limits", "alerts/sender/worker/main",
        "alerts/sender/worker/service", "alerts/sender/worker/templates",
    ),
    "tests/unit/service/test_channels.py": ("views/channels",),
    "tests/unit/cli/test_alerts.py": ("cli/alerts_source",),
    "tests/unit/cli/test_systemd.py": ("cli/service",),
    # The parts of the daemon only make sense joined, in a process.
    "tests/acceptance/test_daemon_life.py": (
        "daemon/databases",
        "daemon/runtime",
    ),
    "tests/acceptance/test_endpoints.py": ("daemon/server",),
    "tests/integration/test_alerts.py": ("daemon/alert_sending",),
    "tests/acceptance/test_api.py": ("daemon/answering",),
    # A command, its nanny and what forks that are processes.
    "tests/integration/test_commands.py": (
        "commands/nanny", "commands/process", "commands/runner", "commands/running", "commands/spawner",
        "commands/sweep", "commands/wire",
    ),
    # What runs inside a worker is tested inside one.
    "tests/integration/test_worker_process.py": (
        "lua/worker/runtime/compile", "lua/worker/runtime/kills", "lua/worker/runtime/prelude",
        "lua/worker/runtime/run", "lua/worker/runtime/runtime", "lua/worker/runtime/trace",
        "lua/worker/library/coroutines", "lua/worker/library/failures",
    ),
    "tests/integration/test_worker_loads.py": ("lua/worker/runtime/loads",),
    "tests/integration/test_worker_triggers.py": ("lua/worker/runtime/trigger",),
    "tests/integration/test_worker_alerts.py": ("lua/worker/runtime/alert",),
    "tests/integration/test_worker_cycles.py": ("lua/worker/runtime/cycle", "lua/worker/runtime/procedures"),
    "tests/integration/test_worker_requests.py": ("lua/worker/runtime/response", "lua/worker/runtime/server"),
    "tests/integration/test_worker_tests.py": ("lua/worker/runtime/testing",),
    "tests/property/test_codec.py": (
        "lua/worker/runtime/codec", "lua/worker/runtime/codes", "lua/worker/runtime/encode",
    ),
    # The library's files are one thing to a script, and tested by what a script sees of them.
    "tests/unit/lua/worker/library/test_template.py": ("lua/worker/library/render",),
    "tests/unit/lua/worker/library/test_tables_freeze.py": ("lua/worker/library/access",),
    "tests/unit/lua/worker/library/test_values.py": (
        "lua/worker/library/copy", "lua/worker/library/dump", "lua/worker/library/engine",
    ),
    "tests/unit/lua/worker/library/test_standard.py": (
        "lua/worker/library/bit32", "lua/worker/library/numbers", "lua/worker/library/strings",
    ),
}  # fmt: skip

# a test file without a module → why
MORE_THAN_A_MODULE: dict[str, str] = {
    "store/contract": "the SQLite store and its fake pass the same tests",
    "store/state_contract": "so do typed values, in SQLite, encrypted, and in the fake",
    "store/events_contract": "the same of change events",
    "store/locks_contract": "the same of locks",
    "store/records_contract": "the same of records",
    "store/outbox_contract": "the same of messages",
    "store/tasks_contract": "the same of the ends of tasks",
    "store/requests_contract": "the same of requests that start runs",
    "store/keys_contract": "the same of keys and sessions",
    "store/audit_contract": "the same of the audit trail",
    "store/notices_contract": "the same of notices",
    "store/incidents_contract": "the same of incidents",
    "store/past_runs_contract": "the same of questions about past runs",
}

NO_CODE = {"__init__.py", "__main__.py"}


def modules() -> set[str]:
    """`jobs/parse`, `lua/worker/prelude`, ..."""
    source = ROOT / "spyweb"
    files = [*source.rglob("*.py"), *source.glob("lua/worker/*/*.lua")]
    return {_name(path, source) for path in files if path.name not in NO_CODE}


def unit_tests() -> set[str]:
    """`jobs/parse` for tests/unit/specs/test_parse.py; those of the fakes mirror the fakes."""
    source = ROOT / "tests/unit"
    names = {_name(path, source) for path in source.rglob("test_*.py") if "fakes" not in path.parts[-2:-1]}
    return {str(PurePosixPath(name).with_name(PurePosixPath(name).name.removeprefix("test_"))) for name in names}


def excused() -> set[str]:
    return {module for modules_there in TESTED_ELSEWHERE.values() for module in modules_there}


def _name(path: Path, source: Path) -> str:
    return path.relative_to(source).with_suffix("").as_posix()


def _belongs(test: str, module: str) -> bool:
    return test == module or test.startswith(f"{module}_")


def test_every_module_has_its_test_file() -> None:
    tests = unit_tests()
    bare = {module for module in modules() if not any(_belongs(test, module) for test in tests)}
    assert bare - excused() == set()


def test_every_unit_test_file_has_its_module() -> None:
    known = modules()
    lonely = {test for test in unit_tests() if not any(_belongs(test, module) for module in known)}
    assert lonely - MORE_THAN_A_MODULE.keys() == set()


def test_the_exceptions_are_still_needed_and_true() -> None:
    tests = unit_tests()
    assert not [where for where in TESTED_ELSEWHERE if not (ROOT / where).is_file()]
    assert excused() <= modules(), f"gone: {excused() - modules()}"
    assert not {module for module in excused() if any(_belongs(test, module) for test in tests)}, "has its own by now"
    for test in MORE_THAN_A_MODULE:
        assert test in tests, f"there is no such test: {test}"
