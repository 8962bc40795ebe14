from __future__ import annotations

from pathlib import Path

import pytest

from spyweb.errors import Problem
from spyweb.specs.parse import JobPlace
from spyweb.specs.tree import Notes, find_job_files, read_source


def test_jobs_come_in_the_order_of_their_names(tmp_path: Path) -> None:
    (tmp_path / "jobs/b").mkdir(parents=True)
    (tmp_path / "jobs/b/init.lua").touch()
    (tmp_path / "jobs/c.lua").touch()
    (tmp_path / "jobs/a.lua").touch()
    notes = Notes()

    assert list(find_job_files(tmp_path, notes)) == [
        JobPlace(file="jobs/a.lua", folder="jobs/a", name="a", is_script=True),
        JobPlace(file="jobs/b/init.lua", folder="jobs/b", name="b", is_script=True),
        JobPlace(file="jobs/c.lua", folder="jobs/c", name="c", is_script=True),
    ]
    assert notes == Notes()


def test_a_jobs_folder_that_leaves_the_project_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "project").mkdir()
    (tmp_path / "project/jobs").symlink_to("../elsewhere")
    notes = Notes()

    assert list(find_job_files(tmp_path / "project", notes)) == []
    assert [str(problem) for problem in notes.refused] == ["jobs/: can't be read: a link that leaves the project"]


def test_a_file_that_went_away_meanwhile_or_is_without_rights_is_a_problem_and_no_exception(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    gone = Problem("jobs/a.lua", None, None, "can't be read: No such file or directory")
    assert read_source(tmp_path, "jobs/a.lua") == gone
    monkeypatch.setattr("spyweb.specs.tree.os.open", refuse)
    assert str(read_source(tmp_path, "jobs/a.lua")) == "jobs/a.lua: can't be read: Permission denied"


def test_the_largest_file_allowed_is_read_whole(tmp_path: Path) -> None:
    (tmp_path / "a.lua").write_bytes(b"x" * (1 << 20))
    assert read_source(tmp_path, "a.lua") == b"x" * (1 << 20)


@pytest.mark.parametrize(
    ("made", "warning"),
    [
        ("b.luau", "jobs/b.luau: is no job: a script's name ends in .lua; expected jobs/b.lua"),
        ("UPPER.LUA", "jobs/UPPER.LUA: is no job: a script's name ends in .lua; expected jobs/UPPER.lua"),
        ("a.lua.txt", "jobs/a.lua.txt: is no job: a script's name ends in .lua; expected jobs/a.lua"),
        ("Build.SLOTH", "jobs/Build.SLOTH: is no job: a script's name ends in .lua; expected jobs/Build.lua"),
        ("config.toml", "jobs/config.toml: is no job: a monitor's settings are in jobs/NAME/config.toml"),
        ("page.tml", "jobs/page.tml: is no job: expected jobs/page/config.toml, or jobs.toml beside jobs/"),
        ("w/hooks.lua", "jobs/w/: is no job: holds hooks.lua but no config.toml, without which it is no monitor"),
        ("w/config.tml", "jobs/w/: is no job: holds config.tml; a monitor's settings are in config.toml"),
        ("w/Config.toml", "jobs/w/: is no job: holds Config.toml; a monitor's settings are in config.toml"),
        ("w/main.lua", "jobs/w/: is no job: holds main.lua; expected init.lua, or jobs/NAME.lua"),
        ("w/w.lua", "jobs/w/: is no job: holds w.lua; expected init.lua, or jobs/NAME.lua"),
        ("w/some.luau", "jobs/w/: is no job: holds some.luau; expected init.lua, or jobs/NAME.lua"),
    ],
)
def test_a_file_that_was_meant_for_a_job_and_is_none_is_warned_of(made: str, warning: str, tmp_path: Path) -> None:
    path = tmp_path / "jobs" / made
    path.parent.mkdir(parents=True)
    path.touch()
    notes = Notes()

    assert list(find_job_files(tmp_path, notes)) == []
    assert [str(each) for each in notes.warnings] == [warning]
    assert all(each.is_warning for each in notes.warnings)


def test_a_sloth_file_is_a_script_and_its_folder_is_its_own(tmp_path: Path) -> None:
    (tmp_path / "jobs/build").mkdir(parents=True)
    (tmp_path / "jobs/build/data.csv").touch()
    (tmp_path / "jobs/build.sloth").touch()
    notes = Notes()

    (place,) = find_job_files(tmp_path, notes)

    assert (place.file, place.folder, place.name) == ("jobs/build.sloth", "jobs/build", "build")
    assert notes.warnings == []


@pytest.mark.parametrize("made", ["README.md", ".a.lua.swp", "a.lua~", "w/data.csv", "w/hooks.log", "job/lib.lua"])
def test_other_files_are_ignored_without_a_word(made: str, tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs/job.lua").touch()
    path = tmp_path / "jobs" / made
    path.parent.mkdir(exist_ok=True)
    path.touch()
    notes = Notes()

    assert len(list(find_job_files(tmp_path, notes))) == 1
    assert notes.warnings == []
