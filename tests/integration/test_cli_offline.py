"""Each command without a daemon: the project's files and a real database."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sqlite3
import tempfile
from asyncio import Future
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from spyweb.clock import RealClock
from spyweb.daemon.commands import start
from spyweb.daemon.world import NO_GROUP
from spyweb.model import Cursor, JobId, Outcome, RunId, RunState, Trigger
from spyweb.programs.cgroup import find_delegated
from spyweb.store.lock import hold_lock
from spyweb.store.model.runs import Change, End, NewRun
from spyweb.store.sqlite.migrate import load_migrations, migrate
from spyweb.store.sqlite.runs import Runs
from spyweb.store.sqlite.store import open_store
from tests.fakes.command import Answer, spyweb

TICK = JobId("tick")
NOBODY = 65534


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "config.toml").write_text('[daemon]\ntimezone = "UTC"\n')
    (tmp_path / "jobs" / "tick.lua").write_text('-- /// job\n-- every = "30s"\n-- ///\n')
    (tmp_path / "jobs" / "nightly.lua").write_text(
        '-- /// job\n-- name = "Backup"\n-- cron = "0 3 * * *"\n-- timezone = "Asia/Tokyo"\n-- ///\n'
    )
    return tmp_path


@pytest.fixture
def broken(project: Path) -> Path:
    (project / "jobs" / "typo.lua").write_text('-- /// job\n-- evry = "30s"\n-- ///\n')
    return project


@pytest.fixture
def ran(project: Path) -> Path:
    """A daemon was here a minute ago: `tick` ran once and failed."""
    asyncio.run(record_a_failure(project))
    return project


async def record_a_failure(root: Path) -> None:
    clock = RealClock()
    now = clock.now_ms()
    with hold_lock(root / "data", clock=clock):
        store = await open_store(root / "data" / "spyweb.db", clock=clock)
        try:
            new = NewRun(job=TICK, state=RunState.RUNNING, trigger=Trigger(type="manual"), started_ms=now - 60_000)
            cursor = Cursor(job=TICK, due_ms=now - 60_000, schedule="every 30000")
            (run,) = await store.runs.record(Change(new=[new], cursors=[cursor]))
            assert run is not None
            end = End(run=run, ended_ms=now - 59_000, outcome=Outcome.FAILED, reason="jobs/tick.lua:1: no")
            await store.runs.record(Change(end=[end]))
        finally:
            await store.close()


async def cursors_of(root: Path) -> dict[JobId, Cursor]:
    store = await open_store(root / "data" / "spyweb.db", clock=RealClock(), read_only=True)
    try:
        return await store.runs.cursors()
    finally:
        await store.close()


def states_of(root: Path) -> dict[str, str]:
    return {row[0]: row[1] for row in spyweb("jobs", root=root).table}


CHANNELS = """[channels.a]
url = "ntfyy://topic"
[channels.b]
url = "ntfy://topic"
templates = { title = "{{ knd }}" }
[channels.c]
url = "ntfy://topic"
[channels.c.templates]
body = '''
{{ kind }}{% fi %}
'''
[channels.d]
url_file = "nope"
[channels.e]
url_file = "phone"
[channels.f]
url = "mqtt://hunter2hunter2"
[channels.g]
url = "ntfy://${NO_SUCH}"
"""


def test_before_the_first_start_the_files_alone_are_shown(project: Path) -> None:
    assert states_of(project) == {"backup": "idle", "tick": "idle"}
    assert spyweb("runs", root=project) == Answer(0, "", "no runs yet\n")
    assert not (project / "data").exists()


def test_a_file_that_is_wrong_is_shown_with_what_is_right(broken: Path) -> None:
    rows = {row[0]: row[1:] for row in spyweb("jobs", root=broken).table}
    assert rows["typo"][0] == "broken"
    assert "jobs/typo.lua:2" in rows["typo"][-1]
    assert "every" in rows["typo"][-1]
    assert rows["tick"][0] == "idle"


def test_what_does_not_compile_is_told_beside_what_is_wrong_in_the_settings(project: Path) -> None:
    (project / "jobs" / "typo.lua").write_text('-- /// job\n-- evry = "30s"\n-- ///\nlocal x = = 1\n')
    (project / "jobs" / "torn.lua").write_text("-- /// job\n-- every =\n-- ///\nlocal y = )\n")
    (project / "jobs" / "Tick").mkdir()
    (project / "jobs" / "Tick" / "init.lua").write_text("end\n")
    found = spyweb("check", root=project)
    assert found.code == 1
    assert {tuple(row[:2]) for row in found.table} == {
        ("jobs/Tick/init.lua", "1"),
        ("jobs/tick.lua", 'gives the id "tick", and so does jobs/Tick/init.lua; ids must differ'),
        ("jobs/torn.lua", "2"),
        ("jobs/torn.lua", "4"),
        ("jobs/typo.lua", "2"),
        ("jobs/typo.lua", "4"),
    }


def test_what_is_doubtful_is_told_beside_a_wrong_selector_but_not_of_a_text_that_is_no_lua(project: Path) -> None:
    (project / "jobs" / "torn.lua").write_text("htp_get('x') = )\n")
    (project / "jobs" / "w").mkdir()
    (project / "jobs" / "w" / "config.toml").write_text(
        'name = "w"\nurl = "https://a.b"\nselector = "li["\nfields = ["t"]\ninterva = 5\n'
    )
    (project / "jobs" / "w" / "hooks.lua").write_text("function before_fech(request) return request end\n")
    found = spyweb("check", root=project)
    assert found.code == 1
    assert [row[0] for row in found.table] == ["jobs/torn.lua", *["jobs/w/config.toml"] * 2, "jobs/w/hooks.lua"]
    assert 'warning: no hook is named before_fech; did you mean "before_fetch"?' in found.out


def test_what_is_wrong_with_alert_channels_is_told_with_its_line_and_without_its_secret(project: Path) -> None:
    (project / "config.toml").write_text(CHANNELS)
    (project / "config.toml").chmod(0o600)
    (project / "phone").write_text("tgram://hunter2hunter2\n")
    (project / "phone").chmod(0o644)
    found = spyweb("check", "--output", "json", root=project)
    assert "hunter2" not in found.out
    told = [(each["line"], each["key"], each["is_warning"]) for each in json.loads(found.out)]
    assert told == [
        (2, "channels.a.url", False),
        (5, "channels.b.templates.title", False),
        (9, "channels.c.templates.body", False),
        (13, "channels.d.url_file", False),
        (15, "channels.e.url_file", False),
        (15, "channels.e.url_file", True),
        (17, "channels.f.url", False),
        (19, "channels.g.url", True),
    ]
    reasons = [each["reason"] for each in json.loads(found.out)]
    assert reasons[0] == 'no service "ntfyy", did you mean "ntfy"?'
    assert reasons[1] == "no message has 'knd', did you mean 'kind'?"
    assert reasons[2].startswith("in its line 1: Encountered unknown tag 'fi'.")  # TOML drops the first line break
    assert reasons[3] == "the file nope can't be read: No such file or directory"
    assert "Telegram" in reasons[4]
    assert reasons[5] == "others on this machine may read it: chmod 600 phone"
    assert reasons[6].startswith("mqtt is not available here: it needs the package paho-mqtt")
    assert reasons[7] == "the variable NO_SUCH is not set, in the environment of this check"
    assert spyweb("jobs", root=project).code == 0  # a shell has not the variables of the daemon


def test_check_says_of_a_limit_what_start_refuses_it_for(project: Path) -> None:
    with (project / "config.toml").open("a") as settings:
        settings.write("[exec]\nprocesses = 9\n")
    found = spyweb("check", root=project)
    if find_delegated() is None:
        assert f"warning: {NO_GROUP}" in found.out
    else:
        assert "processes" not in found.out
    assert found.code == 0


def test_what_ran_is_read_from_the_database(ran: Path) -> None:
    (row,) = spyweb("runs", root=ran).table
    assert (row[1], row[3:]) == ("tick", ["1s", "manual", "failed: jobs/tick.lua:1: no"])
    (tick,) = [row for row in spyweb("jobs", root=ran).table if row[0] == "tick"]
    assert tick[-3].startswith("failed, ")
    assert tick[-2:] == ["1s", "jobs/tick.lua:1: no"]


def test_a_job_that_is_gone_keeps_its_history(ran: Path) -> None:
    (ran / "jobs" / "tick.lua").unlink()

    (row,) = spyweb("runs", "tick", root=ran).table
    assert row[-1] == "failed: jobs/tick.lua:1: no"
    assert spyweb("runs", "tuck", root=ran).err == "spyweb: no job is named 'tuck': `spyweb jobs` lists them\n"


def test_next_runs_are_in_the_future_and_in_the_zone_of_the_job(ran: Path) -> None:
    now = RealClock().now_ms()
    found = spyweb("next", "-n", "4", "-o", "json", root=ran).json
    assert all(run["due_ms"] > now for run in found)
    assert [run["due_ms"] for run in found] == sorted(run["due_ms"] for run in found)
    (nightly,) = spyweb("next", "Backup", "-n", "1", root=ran).table
    assert nightly[0].endswith("03:00:00 JST")


def test_a_job_is_shown_with_its_last_error_and_the_origin_of_each_setting(ran: Path) -> None:
    (ran / "config.toml").write_text('[daemon]\ntimezone = "UTC"\n[jobs.tick]\nretries = 3\n')
    answer = spyweb("show", "tick", root=ran)
    facts = dict(line.split("  ", 1) for line in answer.lines if "  " in line)
    assert facts["state"].strip().startswith("failing: 1 run, since ")
    assert facts["last run"].strip().startswith(("1, failed 59", "1, failed 1m"))
    assert facts["success rate"].strip().startswith("0 % of 1 run")
    assert "last error, run 1:\n  jobs/tick.lua:1: no\n" in answer.out
    shown = [line.split() for line in answer.lines]
    assert ["retries", "3", "config.toml:4,", "[jobs.tick]"] in shown
    assert ["run", "job", "began", "took", "trigger", "outcome"] in shown
    assert answer.err.endswith("defaults: --all shows them\n")
    detail = spyweb("show", "tick", "-o", "json", root=ran).json
    assert (detail["job"]["row"]["failing"]["count"], [run["id"] for run in detail["runs"]]) == (1, [1])
    (ran / "jobs" / "tick.lua").write_text('-- /// job\n-- evry = "30s"\n-- ///\n')
    assert "failed: jobs/tick.lua:1: no" in spyweb("show", "tick", root=ran).out, "a broken job has its past runs"


def test_reading_does_not_need_the_lock(ran: Path) -> None:
    with hold_lock(ran / "data"):
        assert states_of(ran) == {"backup": "idle", "tick": "failing"}
        assert spyweb("runs", root=ran).code == 0


def test_a_pause_without_a_daemon_is_kept_for_the_next_one(ran: Path) -> None:
    assert spyweb("pause", "tick", root=ran).out == "tick is paused until `spyweb resume tick`\n"
    assert states_of(ran)["tick"] == "paused"
    cursor = asyncio.run(cursors_of(ran))[TICK]
    assert cursor.paused
    assert cursor.idle_since_ms is not None
    with closing(sqlite3.connect(ran / "data" / "spyweb.db")) as connection, connection:
        connection.execute("UPDATE cursor SET paused_for = '3 failures in a row'")
    assert "3 failures in a row" in spyweb("jobs", root=ran).out
    assert spyweb("resume", "tick", root=ran).out.startswith("tick is resumed: next due in ")
    assert states_of(ran)["tick"] == "failing"
    assert spyweb("resume", "tick", root=ran).out.startswith("tick was not paused: next due in ")
    assert asyncio.run(cursors_of(ran))[TICK].paused_for == ""


@pytest.mark.parametrize("is_seen", [True, False])
def test_a_pause_undoes_nothing_that_somebody_else_has_written_meanwhile(
    is_seen: bool, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_seen:
        asyncio.run(record_a_failure(project))
    theirs = [Cursor(job=TICK, due_ms=1_000_000, schedule="every 7000")]
    record = Runs.record

    def record_after_them(runs: Runs, change: Change) -> Future[list[RunId | None]]:
        if theirs:
            record(runs, Change(cursors=[theirs.pop()]))
        return record(runs, change)

    monkeypatch.setattr(Runs, "record", record_after_them)
    assert spyweb("pause", "tick", root=project).code == 0

    cursor = asyncio.run(cursors_of(project))[TICK]
    assert (cursor.due_ms, cursor.schedule, cursor.paused) == (1_000_000, "every 7000", True)


def test_a_job_that_no_daemon_has_seen_can_be_paused(project: Path) -> None:
    assert spyweb("pause", "Backup", root=project).code == 0
    assert states_of(project) == {"backup": "paused", "tick": "idle"}
    assert (project / "data").stat().st_mode & 0o777 == 0o700


def test_resuming_what_is_not_paused_changes_nothing(ran: Path) -> None:
    before = asyncio.run(cursors_of(ran))
    assert spyweb("resume", "tick", root=ran).code == 0
    assert asyncio.run(cursors_of(ran)) == before


@pytest.fixture
def locked(ran: Path) -> Iterator[Path]:
    """A daemon that is starting or stopping: it has the lock and does not answer."""
    with hold_lock(ran / "data"):
        yield ran


@pytest.mark.parametrize("words", [["pause", "tick"], ["stop"]])
def test_changing_something_needs_the_lock_and_says_who_has_it(
    locked: Path, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start, "STARTING_S", 0)
    answer = spyweb(*words, root=locked)
    assert (answer.code, answer.out) == (2, "")
    assert "is in use by pid " in answer.err


@pytest.mark.parametrize("word", ["pause", "resume"])
def test_a_job_that_does_not_load_can_not_be_steered(broken: Path, word: str) -> None:
    assert spyweb(word, "typo", root=broken).err == "spyweb: typo does not load: `spyweb check` says why\n"


@pytest.mark.parametrize("words", [["trigger", "tick"], ["health"]])
def test_what_only_a_daemon_can_do_says_how_to_start_one(project: Path, words: list[str]) -> None:
    answer = spyweb(*words, root=project)
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith(f"spyweb: no daemon runs in {project}: ")
    assert "`spyweb start` starts one" in answer.err


def test_a_project_without_jobs_says_where_to_put_one(tmp_path: Path) -> None:
    assert spyweb("jobs", root=tmp_path) == Answer(0, "", "no jobs: put a Lua file into jobs/\n")


def test_a_wrong_setting_is_one_line_with_file_line_and_key(project: Path) -> None:
    (project / "config.toml").write_text("[server]\nport = -1\n")
    answer = spyweb("jobs", root=project)
    assert (answer.code, answer.err.count("\n")) == (2, 1)
    assert answer.err.startswith("spyweb: config.toml:2: server.port: ")


def test_a_damaged_database_is_one_line_with_the_way_out(project: Path) -> None:
    (project / "data").mkdir(mode=0o700)
    (project / "data" / "spyweb.db").write_bytes(b"not a database" * 1000)
    answer = spyweb("runs", root=project)
    assert (answer.code, answer.err.count("\n"), "--repair" in answer.err) == (2, 1, True)


# -- somebody else's ------------------------------------------------------------------------------------------


@pytest.fixture
def stranger(ran: Path) -> Iterator[Path]:
    """The project of one user, looked at by another."""
    if os.geteuid() != 0:
        pytest.skip("only root can become somebody else")
    with tempfile.TemporaryDirectory() as place:  # tmp_path lies where nobody else can look
        Path(place).chmod(0o755)
        root = Path(shutil.copytree(ran, Path(place) / "project"))
        root.chmod(0o755)
        os.seteuid(NOBODY)
        try:
            yield root
        finally:
            os.seteuid(0)


@pytest.mark.parametrize("words", [["jobs"], ["pause", "tick"], ["health"]])
def test_somebody_elses_data_is_told_with_whose_it_is_and_the_way_in(stranger: Path, words: list[str]) -> None:
    answer = spyweb(*words, root=stranger)
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.splitlines() == [answer.err.strip()]
    assert answer.err.startswith(f"spyweb: {stranger}/data: ")
    assert "it belongs to root; use `sudo -u root`" in answer.err


def test_a_project_that_nobody_else_may_enter_is_told_the_same_way(stranger: Path) -> None:
    os.seteuid(0)
    stranger.chmod(0o700)
    os.seteuid(NOBODY)
    assert "use `sudo -u root`" in spyweb("jobs", root=stranger).err


def test_a_project_that_has_not_run_yet_can_be_looked_at_by_anybody(stranger: Path) -> None:
    os.seteuid(0)
    shutil.rmtree(stranger / "data")
    os.seteuid(NOBODY)
    assert states_of(stranger) == {"backup": "idle", "tick": "idle"}


def test_a_change_that_makes_a_new_database_says_so(project: Path) -> None:
    first, second = (spyweb("state", "set", "k", number, root=project) for number in "12")
    assert (first.code, first.err) == (0, f"created a new database: {project}/data/spyweb.db\n")
    assert second.err == ""


def test_a_change_that_upgrades_the_database_answers_with_nothing_but_json(project: Path) -> None:
    (project / "data").mkdir(mode=0o700)
    path = project / "data" / "spyweb.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as older:
        migrate(older, path, load_migrations()[:-1], 0)

    answer = spyweb("state", "set", "a", "1", "-o", "json", root=project)

    assert json.loads(answer.out) == {"key": "a", "created": True}
    assert path.with_name(f"spyweb.db.before-{load_migrations()[-1].number:04d}").exists()
