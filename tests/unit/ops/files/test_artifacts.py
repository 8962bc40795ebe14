"""Files that tasks keep and give back: inside the job's folder, whole, and bounded."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from spyweb.files import Forbidden
from spyweb.model import JobId, RunId
from spyweb.ops.files import artifacts
from spyweb.ops.files.artifacts import Artifacts, list_files

JOB, FOLDER = JobId("build"), "jobs/build"
FIRST, SECOND, THIRD = RunId(1), RunId(2), RunId(3)


@pytest.fixture
def kept(tmp_path: Path) -> Artifacts:
    (tmp_path / FOLDER / "dist").mkdir(parents=True)
    for name in ("app.zip", "dist/a.txt", "dist/b.txt", "notes.csv"):
        (tmp_path / FOLDER / name).write_text(name)
    return Artifacts(tmp_path, tmp_path / "data/artifacts")


def of_run(tmp_path: Path, run: RunId) -> list[str]:
    return list_files(tmp_path / "data/artifacts/build" / str(run))


def test_what_matches_is_kept(kept: Artifacts, tmp_path: Path) -> None:
    assert kept.keep(JOB, FIRST, FOLDER, ["*.zip", "dist/*"]) == ["app.zip", "dist/a.txt", "dist/b.txt"]
    assert of_run(tmp_path, FIRST) == ["app.zip", "dist/a.txt", "dist/b.txt"]
    assert of_run(tmp_path, SECOND) == []


def test_a_copy_is_not_changed_with_its_file_and_is_replaced_by_the_next(kept: Artifacts, tmp_path: Path) -> None:
    kept.keep(JOB, FIRST, FOLDER, ["app.zip"])
    (tmp_path / FOLDER / "app.zip").write_text("new")
    copy = tmp_path / "data/artifacts/build/1/app.zip"
    assert copy.read_text() == "app.zip"
    kept.keep(JOB, FIRST, FOLDER, ["app.zip"])
    assert copy.read_text() == "new"


def test_what_was_kept_is_given_back(kept: Artifacts, tmp_path: Path) -> None:
    kept.keep(JOB, FIRST, FOLDER, ["*"])
    for name in ("app.zip", "dist/a.txt"):
        (tmp_path / FOLDER / name).unlink()
    (tmp_path / FOLDER / "dist/b.txt").write_text("changed")
    assert kept.give_back(JOB, FIRST, FOLDER, ["dist/*"]) == ["dist/a.txt", "dist/b.txt"]
    assert (tmp_path / FOLDER / "dist/b.txt").read_text() == "dist/b.txt"
    assert not (tmp_path / FOLDER / "app.zip").exists()
    assert sorted(os.listdir(tmp_path / FOLDER / "dist")) == ["a.txt", "b.txt"]


def test_a_pattern_that_nothing_matches_is_refused(kept: Artifacts) -> None:
    with pytest.raises(Forbidden, match=r"no file in jobs/build matches '\*\.pdf'"):
        kept.keep(JOB, FIRST, FOLDER, ["*.zip", "*.pdf"])
    with pytest.raises(Forbidden, match=r"no artifact of this run matches 'app\.zip'"):
        kept.give_back(JOB, SECOND, FOLDER, ["app.zip"])
    with pytest.raises(Forbidden):
        kept.keep(JOB, FIRST, "jobs/none", ["*"])


def test_links_logs_and_what_spyweb_loads_are_not_kept(kept: Artifacts, tmp_path: Path) -> None:
    outside = tmp_path / "secret.txt"
    outside.write_text("secret")
    folder = tmp_path / FOLDER
    (folder / "link.txt").symlink_to(outside)
    (folder / "hard.txt").hardlink_to(outside)
    (folder / "up").symlink_to(tmp_path)
    os.mkfifo(folder / "fifo.txt")
    for name in ("hooks.log", ".hidden", "init.lua", "tests.sloth", "config.toml"):
        (folder / name).write_text("x")
    assert kept.keep(JOB, FIRST, FOLDER, ["*"]) == ["app.zip", "notes.csv", "dist/a.txt", "dist/b.txt"]


def test_a_folder_that_leads_out_is_refused(tmp_path: Path) -> None:
    (tmp_path / "project/jobs").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "project/jobs/build").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Forbidden):
        Artifacts(tmp_path / "project", tmp_path / "data").keep(JOB, FIRST, FOLDER, ["*"])


def test_more_than_a_task_may_keep_is_refused(kept: Artifacts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(artifacts, "ARTIFACTS_FILES", 2)
    with pytest.raises(Forbidden, match="more than 2 files"):
        kept.keep(JOB, FIRST, FOLDER, ["*"])
    monkeypatch.setattr(artifacts, "ARTIFACTS_BYTES", 3)
    with pytest.raises(Forbidden, match="more than"):
        kept.keep(JOB, FIRST, FOLDER, ["app.zip"])


def test_a_run_that_goes_on_has_what_those_before_it_have_kept(kept: Artifacts, tmp_path: Path) -> None:
    kept.keep(JOB, FIRST, FOLDER, ["app.zip", "dist/*"])
    (tmp_path / FOLDER / "app.zip").write_text("second")
    kept.keep(JOB, SECOND, FOLDER, ["app.zip"])
    for _ in range(2):  # done again, it is the same
        kept.carry_over(JOB, [FIRST, SECOND], THIRD)
    assert of_run(tmp_path, THIRD) == ["app.zip", "dist/a.txt", "dist/b.txt"]
    assert (tmp_path / "data/artifacts/build/3/app.zip").read_text() == "second"
    kept.keep(JOB, THIRD, FOLDER, ["app.zip"])
    assert (tmp_path / "data/artifacts/build/1/app.zip").read_text() == "app.zip"


def test_those_of_the_newest_runs_stay(kept: Artifacts, tmp_path: Path) -> None:
    for run in (1, 9, 10):
        kept.keep(JOB, RunId(run), FOLDER, ["app.zip"])
    assert kept.prune(2) == 1
    assert sorted(os.listdir(tmp_path / "data/artifacts/build")) == ["10", "9"]
    assert Artifacts(tmp_path, tmp_path / "none").prune(1) == 0
