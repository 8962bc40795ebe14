"""A small project that works as it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from spyweb.cli.init import TEMPLATE
from spyweb.jobs.discover import scan
from spyweb.settings import load_settings
from tests.fakes.command import spyweb


def files_of(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}


def test_the_project_has_settings_two_jobs_and_what_git_should_ignore(tmp_path: Path) -> None:
    answer = spyweb("init", str(tmp_path / "new" / "project"))
    assert answer.code == 0
    assert files_of(tmp_path / "new" / "project") == set(TEMPLATE)


def test_everything_in_the_project_is_right(tmp_path: Path) -> None:
    spyweb("init", root=tmp_path)
    settings = load_settings(tmp_path, environ={}, flags={})
    found = scan(tmp_path, settings)
    assert set(found.jobs) == {"hello", "check_site"}
    assert not [*found.problems, *found.warnings]


def test_the_next_step_can_be_typed_as_it_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = spyweb("init", str(tmp_path / "p"))
    assert answer.lines[-1] == (
        f"next: `spyweb -C {tmp_path}/p run hello` runs a job once, `spyweb -C {tmp_path}/p start` runs them all"
    )
    monkeypatch.chdir(tmp_path / "p")
    assert spyweb("init", "sub").lines[-1].startswith("next: `spyweb -C sub run hello`")


def test_nothing_is_overwritten_and_nothing_is_half_done(tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "hello.lua").write_text("mine")
    answer = spyweb("init", root=tmp_path)
    assert answer.code == 2
    assert answer.err == f"spyweb: {tmp_path} has jobs/hello.lua already: nothing was written\n"
    assert files_of(tmp_path) == {"jobs/hello.lua"}


def test_a_folder_that_can_not_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    answer = spyweb("init", str(tmp_path / "file" / "project"))
    assert answer.code == 2
    assert answer.err.endswith("Not a directory\n")
