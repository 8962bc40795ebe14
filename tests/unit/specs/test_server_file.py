"""The files of the project's own server."""

from __future__ import annotations

from pathlib import Path

import pytest

from spyweb.model import Isolation
from spyweb.specs.server_file import code_of_server, find_files, find_server
from tests.fakes.rights import bound_by_file_modes, needs_linux


@pytest.fixture
def server(tmp_path: Path) -> Path:
    (tmp_path / "server").mkdir()
    return tmp_path / "server"


def test_a_project_without_a_server_has_none(tmp_path: Path) -> None:
    assert find_server(tmp_path) is None
    assert find_files(tmp_path) == ({}, [])


def test_a_link_that_leaves_the_project_is_a_problem(server: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    outside = tmp_path_factory.mktemp("outside") / "init.lua"
    outside.write_text("return")
    (server / "init.lua").symlink_to(outside)
    assert "a link that leaves the project" in str(find_server(server.parent))


@needs_linux
def test_a_folder_that_may_not_be_entered_is_a_problem_and_not_no_server(server: Path) -> None:
    (server / "init.lua").write_text("return")
    server.chmod(0)
    with bound_by_file_modes():
        found = find_server(server.parent)
    assert str(found) == "server/init.lua: can't be read: Permission denied"


def test_the_server_and_its_tests_are_checked(server: Path) -> None:
    (server / "init.lua").write_text("a = 1")
    (server / "tests.lua").write_bytes(b"")
    sources, problems = find_files(server.parent)
    assert sources == {"server/init.lua": b"a = 1"}
    assert [problem.file for problem in problems] == ["server/tests.lua"]


def test_the_server_has_workers_of_its_own_and_no_job_can_have_their_names() -> None:
    codes = [code_of_server(b"", 3, worker) for worker in range(3)]
    assert [code.job for code in codes] == ["/server", "/server/1", "/server/2"]
    assert {(code.isolation, code.generation) for code in codes} == {(Isolation.PROCESS, 3)}
