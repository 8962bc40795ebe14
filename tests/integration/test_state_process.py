"""Stored values with a real daemon, and commands beside it: a process of their own wherever that could matter."""

from __future__ import annotations

import json
import os
import pty
import signal
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.fakes.command import Answer, spyweb
from tests.fakes.project import COMMAND, PATIENCE, Project, eventually
from tests.fakes.terminal import read_terminal

pytestmark = [pytest.mark.slow, pytest.mark.timeout(90)]

WRITER = """
function run()
  state.set("n", (state.get("n") or 0) + 1)
  store_set("last", "text")
  global_store_incr("total", 0, 5)
  return state.get("from_outside")
end
"""
HOLDER = """
function run()
  assert(state.lock("deploy", 60))
  sleep(60000)
end
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    project = Project(tmp_path)
    project.job("writer", WRITER)
    project.job("holder", HOLDER)
    return project


def state(project: Project, *words: str, code: int = 0) -> str:
    """What the command prints, run in this process: the daemon is another one."""
    return answer(project, *words, code=code).out


def answer(project: Project, *words: str, code: int) -> Answer:
    done = spyweb("state", *words, root=project.root)
    assert done.code == code, f"{words}: {done}"
    return done


@contextmanager
def watching(project: Project, *words: str) -> Iterator[Path]:
    """What a watch shows, once it has begun; Ctrl-C must end it."""
    shown = project.root / "watch.out"
    with shown.open("w") as out:
        command = [*COMMAND, "-C", str(project.root), "state", "watch", *words]
        process = subprocess.Popen(command, env=project.environment, stdout=out, stderr=subprocess.STDOUT)
    try:
        eventually(lambda: "Ctrl-C ends it" in shown.read_text(), "a watch that has begun")
        yield shown
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 130
        assert "Traceback" not in shown.read_text()
    finally:
        process.kill()
        process.wait(PATIENCE)


def test_scripts_and_commands_see_one_state(project: Project) -> None:
    with project.daemon():
        state(project, "set", "from_outside", '{"$base64": "/w=="}')
        project.spyweb("run", "writer")
        project.spyweb("run", "writer")
        assert state(project, "get", "n") == "2\n"
        assert state(project, "get", "last", "--job", "writer") == "text\n"
        assert state(project, "get", "total", "--global") == "10\n"
        state(project, "set", "n", "41")
        project.spyweb("run", "writer")
        assert state(project, "get", "n") == "42\n"
    assert state(project, "get", "n") == "42\n"  # and so does the database, once nobody has it


def test_a_watch_shows_changes_as_they_are_committed(project: Project) -> None:
    project.save("config.toml", '[daemon]\ntimezone = "Asia/Kathmandu"\n')
    with project.daemon(), watching(project, "n*") as shown:
        project.spyweb("run", "writer")
        state(project, "set", "other", "1")
        state(project, "set", "n", "7", "--ttl", "1h")
        state(project, "delete", "n", "-y")
        eventually(lambda: "deleted" in shown.read_text(), "the last change")
        times, changes = zip(*(line.split(" ", 1) for line in shown.read_text().splitlines()[1:]), strict=True)
        seen = datetime.fromisoformat(f"{datetime.now(UTC).date()}T{times[0]}+05:45")
        assert (datetime.now(UTC) - seen) % timedelta(days=1) < timedelta(minutes=2), "not in the project's time zone"
        assert list(changes) == ["created state n  1  by writer", "updated state n  1 -> 7", "deleted state n  was 7"]


def test_a_watch_as_json_is_one_change_a_line_and_ends_with_the_daemon(project: Project) -> None:
    with project.daemon() as daemon:
        shown = project.root / "watch.out"
        command = [*COMMAND, "-C", str(project.root), "state", "watch", "--scope", "s", "-o", "json"]
        with (
            shown.open("w") as out,
            subprocess.Popen(command, env=project.environment, stdout=out, stderr=subprocess.PIPE, text=True) as watch,
        ):
            assert watch.stderr is not None
            assert watch.stderr.readline() == "watching scope:s: Ctrl-C ends it\n"
            state(project, "set", "a", "[1]", "--scope", "s")
            eventually(lambda: shown.read_text().endswith("\n"), "a change")
            assert json.loads(shown.read_text())["new"] == [1]
            assert daemon.stop() == 0
            assert watch.wait(PATIENCE) == 2
            assert watch.stderr.read() == "spyweb: the daemon ended before the end of the watch\n"


def test_a_lock_that_a_run_holds_is_listed_and_broken(project: Project) -> None:
    with project.daemon():
        project.spyweb("trigger", "holder")
        found = eventually(lambda: project.ask("state", "locks"), "a lock")
        assert (found[0]["name"], found[0]["run"]) == ("deploy", 1)
        assert "deploy" in state(project, "locks")
        assert state(project, "locks", "break", "deploy", "-y").startswith("deploy was released: holder#1 ")
        assert project.ask("state", "locks") == []


def test_a_daemon_that_can_not_be_reached_still_keeps_others_from_writing(project: Project) -> None:
    with project.daemon() as daemon:
        state(project, "set", "a", "1")
        (project.root / "data" / "spyweb.sock").unlink()
        refused = answer(project, "set", "a", "2", code=2).err
        assert refused.startswith(f"spyweb: {project.root / 'data'} is in use by pid {daemon.pid} ")
        assert len(refused.splitlines()) == 1
        for words in (["delete", "a", "-y"], ["clear", "-y"], ["move", "x", "y"], ["locks", "break", "a", "-y"]):
            assert "is in use by pid" in answer(project, *words, code=2).err
        assert state(project, "get", "a") == "1\n"


def test_state_of_other_programs_is_brought_along(project: Project) -> None:
    sloth, other = project.root / "state.db", project.root / "old"
    with closing(sqlite3.connect(sloth)) as connection, connection:
        connection.execute("CREATE TABLE state_data (key TEXT PRIMARY KEY, value TEXT, type TEXT, expires_at DATETIME)")
        rows = [("n", "3", "number", None), ("gone", "x", "string", "2001-01-01T00:00:00Z")]
        connection.executemany("INSERT INTO state_data VALUES (?, ?, ?, ?)", rows)
    with closing(sqlite3.connect(other)) as connection, connection:
        connection.execute("CREATE TABLE lua_user (key TEXT PRIMARY KEY, value TEXT NOT NULL)")
        connection.executemany("INSERT INTO lua_user VALUES (?, ?)", [("writer:last", "old"), ("total", "37")])
    assert state(project, "import", "--from", "spyweb", str(other)) == "2 added, 0 replaced\n"
    with project.daemon():
        told = state(project, "import", "--from", "sloth", str(sloth), "--dry-run")
        assert told == "it would be 1 added, 0 replaced, 1 left out: expired\n"
        assert state(project, "import", "--from", "sloth", str(sloth)) == "1 added, 0 replaced, 1 left out: expired\n"
        state(project, "import", "--from", "sloth", str(sloth), "--agent", "prod")
        project.spyweb("run", "writer")
        assert state(project, "get", "n") == "4\n"
        assert state(project, "get", "n", "--agent", "prod") == "3\n"
        assert state(project, "get", "total", "--global") == "42\n"
    wrong = answer(project, "import", "--from", "sloth", str(other), code=2)
    assert "has no table of sloth-runner's state" in wrong.err


@pytest.mark.parametrize(("typed", "code", "left"), [("y\n", 0, False), ("n\n", 1, True), ("\n", 1, True)])
def test_on_a_terminal_what_destroys_something_asks(project: Project, typed: str, code: int, left: bool) -> None:
    state(project, "set", "a", "1")
    ours, theirs = pty.openpty()
    command = [*COMMAND, "-C", str(project.root), "state", "delete", "a"]
    process = subprocess.Popen(
        command, env=project.environment, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    os.close(theirs)
    os.write(ours, typed.encode())
    out, errors = process.communicate(timeout=PATIENCE)
    os.close(ours)
    assert process.returncode == code
    assert errors.startswith("Delete a of state? [y/N] ")
    assert out == ("" if left else "a was deleted\n")
    state(project, "get", "a", code=0 if left else 1)


def test_on_a_terminal_a_bar_shows_how_far_an_import_has_got(project: Project) -> None:
    file = project.root / "in.jsonl"
    file.write_text("".join(f'{{"namespace":"state","key":"k{n}","value":{n}}}\n' for n in range(500)))
    ours, theirs = pty.openpty()
    environment = {**project.environment, "TERM": "xterm-256color"}
    command = [*COMMAND, "-C", str(project.root), "state", "import", str(file), "-y"]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=theirs, text=True)
    os.close(theirs)
    assert "━" in read_terminal(ours)
    out, _ = process.communicate(timeout=PATIENCE)
    assert out == "500 added, 0 replaced\n"


def test_text_comes_out_byte_for_byte_in_a_pipe(project: Project) -> None:
    state(project, "set", "a", '{"$base64": "/wAbWzMxbQ=="}')
    command = [*COMMAND, "-C", str(project.root), "state", "get", "a"]
    done = subprocess.run(command, env=project.environment, capture_output=True, check=True, timeout=60)
    assert done.stdout == b"\xff\x00\x1b[31m\n"


def test_a_key_may_be_any_bytes_that_the_shell_can_pass(project: Project) -> None:
    key = b"k\xff"
    asked: list[list[str | bytes]] = [["set", key, "1"], ["get", key], ["show", key], ["delete", key, "-y"]]
    for words in asked:
        command: list[str | bytes] = [*COMMAND, "-C", str(project.root), "state", *words]
        done = subprocess.run(command, env=project.environment, capture_output=True, check=False, timeout=60)
        assert done.returncode == 0, done.stderr
    assert done.stdout == b"k\\xff was deleted\n"
