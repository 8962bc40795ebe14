from __future__ import annotations

from pathlib import Path

import pytest

from spyweb.errors import Refused
from spyweb.model import Isolation
from spyweb.settings import load_settings
from spyweb.specs.discover import scan
from spyweb.testing.suites import FoundSuites, find_suites
from tests.fakes.rights import bound_by_file_modes, needs_linux

MONITOR = 'name = "The Shop"\nurl = "https://example.org"\nselector = "li"\nfields = ["title:a"]\n'
SCRIPT = '-- /// job\n-- every = "never"\n-- ///\n'


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "jobs").mkdir()
    return tmp_path


def save(root: Path, **files: str) -> None:
    """`jobs__x__tests_lua="..."` is jobs/x/tests.lua."""
    for name, text in files.items():
        stem, _, kind = name.replace("__", "/").rpartition("_")
        path = root / f"{stem}.{kind}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def found(root: Path, wanted: str | None = None) -> FoundSuites:
    return find_suites(root, scan(root, load_settings(root, environ={}, flags={})), wanted)


def files_of(root: Path, wanted: str | None = None) -> list[list[str]]:
    return [[suite.code.chunk, *(path for path, _ in suite.code.more)] for suite in found(root, wanted).suites]


def test_a_monitors_files_come_in_their_order_and_its_tests_last(project: Path) -> None:
    save(project, jobs__shop__config_toml=MONITOR)
    save(project, jobs__shop__hooks_lua="x = 1", jobs__shop__defer_lua="y = 1", jobs__shop__tests_lua="z = 1")

    assert files_of(project) == [["jobs/shop/hooks.lua", "jobs/shop/defer.lua", "jobs/shop/tests.lua"]]


def test_a_monitor_without_other_lua_is_its_tests_alone(project: Path) -> None:
    save(project, jobs__shop__config_toml=MONITOR, jobs__shop__tests_lua="z = 1")

    assert files_of(project) == [["jobs/shop/tests.lua"]]


def test_a_scripts_tests_are_in_its_folder(project: Path) -> None:
    save(project, jobs__ping_lua=SCRIPT + "x = 1", jobs__ping__tests_lua="y = 1")
    save(project, jobs__pong__init_lua=SCRIPT + "x = 1", jobs__pong__tests_lua="y = 1")

    assert files_of(project) == [
        ["jobs/ping.lua", "jobs/ping/tests.lua"],
        ["jobs/pong/init.lua", "jobs/pong/tests.lua"],
    ]


@needs_linux
def test_a_folder_that_may_not_be_entered_is_told_beside_the_others(project: Path) -> None:
    save(project, jobs__ping_lua=SCRIPT + "x = 1", jobs__ping__tests_lua="y = 1")
    save(project, jobs__pong_lua=SCRIPT + "x = 1", jobs__pong__tests_lua="y = 1")
    (project / "jobs" / "ping").chmod(0)

    with bound_by_file_modes():
        all_found = found(project)

    assert [suite.title for suite in all_found.suites] == ["pong"]
    assert all("can't be read: Permission denied" in why for _, why in all_found.broken)
    assert {"ping", "jobs/ping"} >= {name for name, _ in all_found.broken} >= {"ping"}


def test_disabled_jobs_are_tested_too(project: Path) -> None:
    save(project, jobs__shop__config_toml=MONITOR + "enabled = false\n", jobs__shop__tests_lua="z = 1")

    assert [suite.title for suite in found(project).suites] == ["the_shop"]


def test_a_job_in_whose_files_no_test_can_be_is_not_touched(project: Path) -> None:
    save(project, jobs__ping_lua=SCRIPT + 'http_post("https://example.org", "")')
    save(project, jobs__pong_lua=SCRIPT + "function test_pong() end")

    assert files_of(project) == [["jobs/pong.lua"]]


def test_a_job_is_found_by_its_name_and_by_its_id(project: Path) -> None:
    save(project, jobs__shop__config_toml=MONITOR, jobs__shop__tests_lua="z = 1", jobs__ping_lua=SCRIPT + "x = 1")

    assert files_of(project, "The Shop") == files_of(project, "the_shop") == [["jobs/shop/tests.lua"]]
    with pytest.raises(Refused, match="no job is named 'the-shop': did you mean 'the_shop'"):
        found(project, "the-shop")


def test_a_job_that_does_not_load_is_told(project: Path) -> None:
    save(project, jobs__typo_lua='-- /// job\n-- evry = "5s"\n-- ///\n', jobs__ping_lua=SCRIPT + "x = 1")

    reason = 'jobs/typo.lua:2: evry: unknown key; did you mean "every"?'
    assert found(project).broken == found(project, "typo").broken == [("typo", reason)]
    assert found(project, "ping").broken == []


def test_tests_that_are_no_text_are_told(project: Path) -> None:
    save(project, jobs__ping_lua=SCRIPT + "x = 1")
    (project / "jobs" / "ping").mkdir()
    (project / "jobs" / "ping" / "tests.lua").write_bytes(b"\x1bLua")

    assert found(project).broken == [("ping", "jobs/ping/tests.lua:1: is Lua bytecode; only source text is run")]


def test_a_suite_has_the_limits_of_its_job(project: Path) -> None:
    head = '-- /// job\n-- timeout = "2s"\n-- cpu_limit = "1s"\n-- memory_limit = "32MB"\n-- agent = "a"\n-- ///\n'
    save(project, jobs__ping_lua=head + "function test_x() end")

    (suite,) = found(project).suites
    assert (suite.timeout_ms, suite.cpu_limit_ms, suite.code.memory_limit, suite.agent) == (2000, 1000, 32 << 20, "a")


def test_the_servers_tests_are_found_in_their_file_alone(project: Path) -> None:
    save(project, server__init_lua="x = 1", server__tests_lua="y = 1")

    (suite,) = found(project).suites
    assert (suite.title, suite.job, suite.folder) == ("server", "/server", "server")
    assert (suite.finding.chunk, suite.finding.more) == ("server/tests.lua", ())
    assert (suite.code.chunk, suite.code.more) == ("server/init.lua", (("server/tests.lua", b"y = 1"),))
    assert suite.code.isolation is Isolation.SHARED


def test_the_servers_tests_need_both_files(project: Path) -> None:
    with pytest.raises(Refused, match="there is neither"):
        found(project, "server")
    save(project, server__init_lua="x = 1")
    assert found(project) == FoundSuites()
    with pytest.raises(Refused, match=r"there is server/init\.lua"):
        found(project, "server")


def test_a_project_may_be_a_server_alone(tmp_path: Path) -> None:
    save(tmp_path, server__init_lua="x = 1", server__tests_lua="y = 1")

    everything = found(tmp_path)
    assert [suite.title for suite in everything.suites] == ["server"]
    assert everything.broken == []


def test_what_is_wrong_and_no_jobs_own_is_told(tmp_path: Path) -> None:
    save(tmp_path, jobs_toml="[[jobs]\n")

    ((title, reason),) = found(tmp_path).broken
    assert title == "jobs.toml"
    assert reason.startswith("jobs.toml:1: ")


def test_a_job_called_server_is_tested_beside_the_server(project: Path) -> None:
    save(
        project, server__init_lua="x = 1", server__tests_lua="y = 1", jobs__server_lua=SCRIPT + "function test_x() end"
    )

    assert files_of(project, "server") == [["server/init.lua", "server/tests.lua"], ["jobs/server.lua"]]
