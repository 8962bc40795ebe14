"""The wheel and the source archive hold every file that they should, and are the same bytes each time."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.fakes.repository import ROOT, tracked_files

pytestmark = [pytest.mark.slow, pytest.mark.timeout(90)]

TREE = {path.relative_to(ROOT).as_posix(): path.read_bytes() for path in tracked_files()}


def build(place: Path, umask: int) -> dict[str, bytes]:
    """Build from a copy of the tree, as `make dist` does; return what was made, by name."""
    source, target = place / "source", place / "dist"
    for path in tracked_files():
        copy = source / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy, follow_symlinks=False)
    done = subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "-o", str(target), str(source)],
        env={**os.environ, "SOURCE_DATE_EPOCH": "1795793298"}, umask=umask, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return {path.name: path.read_bytes() for path in target.iterdir()}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("one")
    build(place, 0o022)
    return place / "dist"


def test_two_builds_are_the_same_bytes_whatever_the_umask_and_the_times_of_the_files(
    built: Path, tmp_path: Path
) -> None:
    assert build(tmp_path, 0o077) == {path.name: path.read_bytes() for path in built.iterdir()}


def test_the_wheel_holds_every_file_of_the_package_and_nothing_else(built: Path) -> None:
    (path,) = built.glob("*.whl")
    with zipfile.ZipFile(path) as wheel:
        held = {name: wheel.read(name) for name in wheel.namelist() if ".dist-info/" not in name}
    assert held == {name: text for name, text in TREE.items() if name.startswith("spyweb/")}


def test_the_source_archive_holds_every_file_of_the_repository(built: Path) -> None:
    (path,) = built.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2]: name for name in archive.getnames()}
        assert names.keys() == {*TREE, "PKG-INFO"}
        files = {name: archive.extractfile(member) for name, member in names.items() if name in TREE}
        assert {name: file.read() for name, file in files.items() if file} == TREE
