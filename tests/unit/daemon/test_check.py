"""What `spyweb check` finds beside the jobs."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from spyweb.cli.output import Format
from spyweb.daemon import check
from spyweb.daemon.check import (
    find_broken_promises,
    find_doubtful_heartbeat,
    find_idle_cluster,
    find_missing_variables,
    find_readable_secrets,
    find_wrong_times,
    why_not_executable,
    why_not_writable,
)
from spyweb.daemon.commands.check import show_problems
from spyweb.errors import Problem
from spyweb.model import PingAddresses
from spyweb.permissions.policy import ExecRule, FilesRule, Grants, Policy
from spyweb.settings.load import load_settings
from spyweb.settings.sections import HeartbeatSettings
from tests.fakes.harness import make_spec


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("", []),
        ("https://hc-ping.com/${KEY}", []),
        (
            "http://localhost:8000/ping/${KEY}",
            ["the address is on this machine, so nobody notices when the machine is down"],
        ),
        ("https://hc-ping.com/${OTHER}", ["the variable OTHER is not set, in the environment of this check"]),
    ],
)
def test_a_heartbeat_that_nobody_would_miss_is_doubtful(url: str, said: list[str]) -> None:
    found = find_doubtful_heartbeat(HeartbeatSettings(url=url), {"KEY": "abc"})
    assert [problem.reason for problem in found] == said
    assert all(problem.is_warning and problem.key == "heartbeat.url" for problem in found)


def test_a_cron_of_backups_that_is_none_is_told_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text('[backup]\nkeep = 3\ncron = "0 25 * * *"\n')
    (found,) = find_wrong_times(load_settings(tmp_path, environ={}, flags={}))
    assert str(found).startswith("config.toml:3: backup.cron: bad hour '25' in the cron expression")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('[channels.phone]\nurl = "tgram://hunter2/1"\n', 2),
        ('[http.headers]\nAuthorization = "Bearer hunter2"\n', 2),
        ('[jobs.a]\n[jobs.a.http]\nproxy = "http://me:hunter2@proxy.example"\n', 3),
        ('[channels.phone]\nurl = "tgram://${TOKEN}/1"\nsecret = "env:HOOK"\nsecret_file = "hook"\n', None),
        ('[http]\nuser_agent = "me"\n', None),
    ],
)
def test_a_secret_in_a_file_that_others_may_read_is_told(tmp_path: Path, text: str, line: int | None) -> None:
    file = tmp_path / "config.toml"
    file.write_text(text)
    file.chmod(0o644)
    found = find_readable_secrets(tmp_path)
    assert [problem.line for problem in found] == ([] if line is None else [line])
    assert all(problem.is_warning and "hunter2" not in str(problem) for problem in found)
    file.chmod(0o640)
    assert find_readable_secrets(tmp_path) == []


def test_a_variable_that_the_address_of_a_watcher_lacks_is_named_with_its_job() -> None:
    whole, own = PingAddresses(base="https://hc/${KEY}"), PingAddresses(fail="https://hc/${OTHER}", is_own=True)
    specs = [
        make_spec(),
        make_spec("a", ping=whole),
        make_spec("b", ping=own),
        make_spec("c", ping=PingAddresses(fail="https://hc/${OTHER}")),
    ]
    found = find_missing_variables(specs, {"KEY": "x"})
    assert [problem.reason for problem in found] == [
        "c: the variable OTHER is not set, in the environment of this check"
    ]


UNIT = {"INVOCATION_ID": "1"}


def test_what_can_be_used_is_no_problem(tmp_path: Path) -> None:
    policy = Policy(granted=Grants(exec=(ExecRule(("/bin/sh",)),), files=FilesRule(frozenset(), (str(tmp_path),))))
    assert find_broken_promises([make_spec(policy=policy)], UNIT) == []
    assert find_broken_promises([make_spec(policy=Policy(granted=Grants(exec=None)))], UNIT) == []


def test_each_promise_is_told_once_with_its_key(tmp_path: Path) -> None:
    policy = Policy(
        granted=Grants(
            exec=(ExecRule(("/no/such", "a")), ExecRule(("/no/such", "b"))), files=FilesRule(frozenset(), ("/no/way",))
        )
    )
    found = find_broken_promises([make_spec(policy=policy)], {})
    assert [(problem.key, problem.reason, problem.is_warning) for problem in found] == [
        ("permissions.exec", "/no/such: No such file or directory", True),
        ("permissions.files", "/no/way: No such file or directory", True),
    ]


def test_a_home_that_the_unit_hides_is_told_as_that() -> None:
    assert "ProtectHome=" in why_not_executable("/home/nobody-here/x", is_unit=True)
    assert "ProtectHome=" not in why_not_executable("/home/nobody-here/x", is_unit=False)


def test_a_read_only_file_system_names_the_directive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flags = os.statvfs(tmp_path)

    class ReadOnly:
        f_flag = flags.f_flag | os.ST_RDONLY | os.ST_NOEXEC

    monkeypatch.setattr(os, "statvfs", lambda _: ReadOnly)
    assert why_not_writable(str(tmp_path), is_unit=True) == "it is read-only: add it to ReadWritePaths= of the unit"
    assert why_not_writable(str(tmp_path), is_unit=False) == "it is read-only"
    (tmp_path / "x").touch(mode=0o644)
    assert "NoExecPaths=" in why_not_executable(str(tmp_path / "x"), is_unit=True)


def test_a_program_that_changes_its_user_needs_new_privileges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program, status = tmp_path / "sudo", tmp_path / "status"
    program.touch()
    program.chmod(0o4755)
    monkeypatch.setattr(check, "STATUS", status)
    assert why_not_executable(str(program), is_unit=True) == ""
    status.write_text("NoNewPrivs:\t0\n")
    assert why_not_executable(str(program), is_unit=True) == ""
    status.write_text("NoNewPrivs:\t1\n")
    assert "NoNewPrivileges=yes" in why_not_executable(str(program), is_unit=True)


def test_what_is_no_program_or_no_folder(tmp_path: Path) -> None:
    (tmp_path / "x").touch(mode=0o644)
    assert why_not_executable(str(tmp_path / "x"), is_unit=True) == "it is not executable"
    assert why_not_executable(str(tmp_path), is_unit=True) == "it is not executable"
    assert why_not_writable(str(tmp_path / "x"), is_unit=True) == "it is not a folder"


def test_a_root_that_reaches_what_spyweb_stores_is_told(tmp_path: Path) -> None:
    data = tmp_path / "project/data"
    data.mkdir(parents=True)
    (tmp_path / "link").symlink_to("project")
    (tmp_path / "project/site").mkdir()
    for root, is_told in (
        (tmp_path, True), (data, True), (tmp_path / "link", True), (tmp_path / "project/site", False),
    ):  # fmt: skip
        policy = Policy(granted=Grants(files=FilesRule(frozenset(), (str(root),))))
        found = find_broken_promises([make_spec(policy=policy)], {}, data)
        assert [problem.reason for problem in found] == is_told * [
            f"{root}: it contains data/ of this project: file.* writes nothing there, but can read it"
        ]


PROBLEMS = [Problem("config.toml", 3, "port", "expected a number"), Problem("jobs/a.lua", None, None, "is no text")]


def test_each_problem_has_file_line_key_and_reason(capsys: pytest.CaptureFixture[str]) -> None:
    show_problems(PROBLEMS, Format.TABLE)
    _, first, second = capsys.readouterr().out.splitlines()
    assert first.split(maxsplit=3) == ["config.toml", "3", "port", "expected a number"]
    assert second.split(maxsplit=1) == ["jobs/a.lua", "is no text"]


def test_a_warning_is_shown_as_one(capsys: pytest.CaptureFixture[str]) -> None:
    show_problems([Problem("jobs/a.lua", 3, None, "defines run and calls it", is_warning=True)], Format.TABLE)
    assert "warning: defines run and calls it" in capsys.readouterr().out


def test_nothing_wrong_is_said_and_is_an_empty_array(capsys: pytest.CaptureFixture[str]) -> None:
    show_problems([], Format.TABLE)
    assert capsys.readouterr() == ("", "no problems found\n")
    show_problems([], Format.JSON)
    assert json.loads(capsys.readouterr().out) == []


def test_settings_of_a_node_without_a_shared_store_are_warned_of(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text('[cluster]\nname = "fra"\n')
    (found,) = find_idle_cluster(load_settings(tmp_path, environ={}, flags={}))
    assert str(found) == (
        'config.toml:1: cluster: it has no effect without [store] url = "postgresql://USER@HOST/DATABASE"'
    )
    shared = {"SPYWEB_STORE_URL": "postgresql://ann@db/x"}
    assert find_idle_cluster(load_settings(tmp_path, environ=shared, flags={})) == []
