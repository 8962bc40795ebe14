"""The table of commands, and where errors become exit codes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from spyweb import __version__, errors
from spyweb.cli import main as command_line
from spyweb.subjects.health import commands as health
from tests.fakes.command import spyweb

TWO_PROBLEMS = errors.ConfigError(
    [errors.Problem("config.toml", 3, "port", "is no number"), errors.Problem("jobs/a.lua", None, None, "bad")]
)


def fail_with(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise error

    monkeypatch.setattr(health, "health", fail)


@pytest.mark.parametrize("words", [["--version"], ["version"], ["v"]])
def test_the_version_is_told_however_it_is_asked_for(words: list[str]) -> None:
    answer = spyweb(*words)
    assert (answer.code, answer.out.startswith(f"spyweb {__version__} (Python 3.")) == (0, True)


def test_the_version_comes_as_json_too() -> None:
    python = ".".join(map(str, sys.version_info[:3]))
    assert spyweb("version", "-o", "json").json == {"spyweb": __version__, "python": python}


@pytest.mark.parametrize("words", [["update"], ["update", "--check"], ["profile"], ["profile", "clear", "all"]])
def test_what_other_programs_have_is_said_not_to_be_here(words: list[str]) -> None:
    answer = spyweb(*words)
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith(f"spyweb: `{words[0]}` is not part of this program: ")


BEYOND = "1" + "0" * 20  # what 64 bits hold


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("xyzzy", "No such command 'xyzzy': `spyweb -h` shows how"),
        ("job", "No such command 'job'. Did you mean 'jobs'?: `spyweb -h` shows how"),
        ("logs", "Missing argument 'JOB': `spyweb logs -h` shows how"),
        ("schema -o json", "No such option: -o: `spyweb schema -h` shows how"),
        ("jobs -C demo", "-C stands before the command: `spyweb jobs -h` shows how"),
        ("next -n 0", "Invalid value for '-n': Input should be greater than or equal to 1: `spyweb next -h` shows how"),
        (
            "jobs -o xml",
            "Invalid value for '-o' / '--output': 'xml' is not one of 'table', 'json': `spyweb jobs -h` shows how",
        ),
        ("next -n 20000", "Input should be less than or equal to 10000"),
        ("next -n two", "Input should be a valid integer"),
        ("runs --outcome good", "'good' is not one of"),
        ("-C absent jobs", "Directory 'absent' does not exist"),
        ("-C file jobs", "Directory 'file' is a file"),
        ("jobs extra", "extra"),
        ("start --port 70000", "65535"),
        ("state rollback k x", "integer"),
        (f"state rollback k {BEYOND} -y", "less than"),
        *((f"{words} -n {BEYOND}", "less than") for words in ("runs", "records a", "logs a", "state list")),
        (f"state history k -n {BEYOND}", "less than"),
    ],
)
def test_wrong_usage_exits_2_and_is_one_line(
    words: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    answer = spyweb(*words.split())
    assert (answer.code, answer.out, answer.err.count("\n")) == (2, "", 1)
    assert said in answer.err.replace("root", "spyweb")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.Refused("no"), 2),
        (errors.NoAccess("data belongs to ada"), 2),
        (errors.LockHeld(Path("data/spyweb.lock"), "pid 7 (ada)"), 2),
        (errors.StoreCorrupt(Path("data/spyweb.db"), "not a database"), 2),
        (errors.PoolError("no worker"), 1),
        (errors.ScriptError("jobs/a.lua", 3, "unexpected symbol"), 1),
        (errors.OpError("no such row"), 1),
    ],
)
def test_each_error_is_one_line_and_an_exit_code(
    error: errors.SpywebError, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_with(error, monkeypatch)
    answer = spyweb("health")
    assert (answer.code, answer.out, answer.err) == (code, "", f"spyweb: {error}\n")


def test_every_problem_of_a_bad_config_has_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    fail_with(TWO_PROBLEMS, monkeypatch)
    answer = spyweb("health")
    assert answer.code == 2
    assert answer.err == "spyweb: config.toml:3: port: is no number\nspyweb: jobs/a.lua: bad\n"


def test_ctrl_c_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    fail_with(KeyboardInterrupt(), monkeypatch)
    assert spyweb("health").code == 130


def test_a_file_that_may_not_be_read_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    fail_with(PermissionError(13, "Permission denied", "/p/jobs"), monkeypatch)
    answer = spyweb("health")
    assert (answer.code, answer.err) == (2, "spyweb: /p/jobs: Permission denied\n")


def test_a_bug_rises_with_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    fail_with(KeyError("a bug"), monkeypatch)
    with pytest.raises(KeyError):
        spyweb("health")


def test_on_windows_one_line_names_the_way_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(SystemExit) as caught:
        command_line.main()
    assert caught.value.code == 2
    said = "spyweb: spyweb does not run on Windows itself: use WSL, or the container image\n"
    assert capsys.readouterr().err == said


def test_a_current_folder_that_is_gone_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    answer = spyweb("jobs")
    assert answer.code == 2
    assert answer.err == "spyweb: the current folder was deleted: change to another, or name the project's with -C\n"
    assert spyweb("init", root=tmp_path).code == 0


LISTENED = "import atexit, sys; atexit.register(lambda: print('\\nimported', *sys.modules))"
PARTS = {"aiohttp", "aiosqlite", "apscheduler", "lupa", "selectolax", "watchfiles", "structlog", "rich", "pydantic"}


def imported_by(code: str, *words: str, root: Path) -> set[str]:
    """The modules that a process has imported by its end."""
    command = [sys.executable, "-c", f"{LISTENED}; {code}", *words]
    ended = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    return set(ended.stdout.splitlines()[-1].split()[1:])


TYPED = "from spyweb.cli.main import main; main()"


@pytest.mark.parametrize("words", [["jobs"], ["-C", ".", "runs", "-n", "5", "-o", "json"]])
def test_without_a_daemon_a_list_is_made_without_what_runs_jobs(words: list[str], tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir()
    assert not imported_by(TYPED, *words, root=tmp_path) & PARTS


def test_what_asks_a_daemon_needs_neither_the_store_nor_the_files_of_jobs(tmp_path: Path) -> None:
    found = imported_by(
        "import spyweb.subjects.jobs.commands, spyweb.subjects.runs.commands, spyweb.subjects.state.commands.entries",
        root=tmp_path,
    )
    assert "spyweb.cli.client" in found
    assert not found & {*PARTS, "asyncio", "sqlite3", "cronsim", "spyweb.store.sqlite.store", "spyweb.specs.discover"}


def test_a_command_is_imported_without_the_others(tmp_path: Path) -> None:
    found = imported_by(TYPED, "-C", ".", "state", "get", "--help", root=tmp_path)
    assert "spyweb.subjects.state.commands.entries" in found
    assert not [
        each for each in found if each.endswith(".commands.transfer") or each.startswith("spyweb.daemon.command")
    ]


@pytest.mark.parametrize("words", [["state", "--help"], ["version"]])
def test_a_list_of_commands_and_the_version_are_shown_without_any_command(words: list[str], tmp_path: Path) -> None:
    found = imported_by(TYPED, *words, root=tmp_path)
    assert "spyweb.cli.main" in found
    assert not found & {*PARTS, "asyncio", "msgspec", "sqlite3", "http.client", "spyweb.settings", "spyweb.model"}
