from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from spyweb.errors import OpError
from spyweb.model import JobId
from spyweb.ops.sources import LARGEST, MOST_PATHS, REFUSED, Module, Sources, digest_of

JOB = JobId("prices")
FOLDER = "jobs/prices"


def write(root: Path, path: str, source: bytes = b"return 1") -> Path:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(source)
    return file


async def find(root: Path, name: bytes, folder: str = FOLDER) -> Module | None:
    return await Sources(root).find(JOB, 1, folder, name)


@pytest.mark.parametrize(
    "paths",
    [
        ["jobs/prices/a/b.lua", "jobs/prices/a/b/init.lua"],
        ["jobs/prices/a/b/init.lua", "a/b.lua"],
        ["a/b.lua", "a/b/init.lua"],
        ["a/b/init.lua"],
    ],
)
async def test_the_job_comes_before_the_project_and_a_file_before_a_folder(tmp_path: Path, paths: list[str]) -> None:
    for path in paths:
        write(tmp_path, path, path.encode())
    assert await find(tmp_path, b"a.b") == Module(path=paths[0], source=paths[0].encode())


async def test_the_server_looks_in_its_own_folder_first(tmp_path: Path) -> None:
    write(tmp_path, "server/util.lua")
    write(tmp_path, "util.lua")
    module = await find(tmp_path, b"util", "server")
    assert module is not None
    assert module.path == "server/util.lua"


@pytest.mark.parametrize(
    "name",
    [
        b"",
        b".",
        b"..",
        b"a..b",
        b".a",
        b"a.",
        b"../a",
        b"/etc/passwd",
        b"a/b",
        b"a\\b",
        b"a\x00b",
        b"a\nb",
        b"C:a",
        b"\xff",
        b"a\xe2\x80\xaeb",
        b"x" * 300,
    ],
)
async def test_a_name_that_is_not_words_with_dots_is_refused(tmp_path: Path, name: bytes) -> None:
    with pytest.raises(OpError, match="module"):
        await find(tmp_path, name)


async def test_other_alphabets_are_words_too(tmp_path: Path) -> None:
    write(tmp_path, "lib/größe-1.lua")
    assert await find(tmp_path, "lib.größe-1".encode()) is not None


async def test_a_symlink_may_lead_about_in_the_project_but_not_out_of_it(tmp_path: Path) -> None:
    root = tmp_path / "project"
    target = write(root, "shared/inside.lua", b"inside")
    outside = write(tmp_path, "outside.lua")
    (root / "near.lua").symlink_to(target)
    (root / "far.lua").symlink_to(outside)
    (root / "up").symlink_to(tmp_path)
    assert await find(root, b"near") == Module(path="near.lua", source=b"inside")
    for name in (b"far", b"up.outside"):
        with pytest.raises(OpError, match="leads out of the project"):
            await find(root, name)


async def test_a_project_that_is_itself_a_symlink_is_fine(tmp_path: Path) -> None:
    write(tmp_path / "real", "a.lua")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert await find(tmp_path / "link", b"a") is not None


async def test_a_folder_outside_is_no_sibling_with_the_same_beginning(tmp_path: Path) -> None:
    write(tmp_path, "project-secret/a.lua")
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "x").symlink_to(tmp_path / "project-secret")
    with pytest.raises(OpError, match="leads out"):
        await find(tmp_path / "project", b"x.a")


async def test_a_loop_of_symlinks_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.lua").symlink_to(tmp_path / "a.lua")
    with pytest.raises(OpError, match=r"a\.lua"):
        await find(tmp_path, b"a")


async def test_only_plain_files_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.lua")
    (tmp_path / "folder.lua").mkdir()
    before = len(os.listdir("/proc/self/fd"))
    for name in (b"pipe", b"folder"):
        with pytest.raises(OpError, match="not a plain file"):
            await find(tmp_path, name)
    assert len(os.listdir("/proc/self/fd")) == before


async def test_bytecode_is_refused(tmp_path: Path) -> None:
    write(tmp_path, "a.lua", b"\x1bLua\x54")
    with pytest.raises(OpError, match="bytecode"):
        await find(tmp_path, b"a")


async def test_a_huge_file_is_refused_and_the_largest_allowed_is_not(tmp_path: Path) -> None:
    write(tmp_path, "most.lua", b"-" * LARGEST)
    write(tmp_path, "more.lua", b"-" * (LARGEST + 1))
    assert await find(tmp_path, b"most") is not None
    with pytest.raises(OpError, match=r"more\.lua is larger than 4 MB"):
        await find(tmp_path, b"more")


async def test_a_file_without_rights_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError(errno.EACCES, "Permission denied")

    write(tmp_path, "a.lua")
    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(OpError, match="Permission denied"):
        await find(tmp_path, b"a")


async def test_what_was_read_and_what_was_missed_is_remembered_by_generation(tmp_path: Path) -> None:
    write(tmp_path, "a.lua", b"return 1")
    sources = Sources(tmp_path)
    await sources.find(JOB, 1, FOLDER, b"a")
    await sources.find(JOB, 2, FOLDER, b"b")
    assert sources.dependencies(JOB, 1) == {
        "jobs/prices/a.lua": None,
        "jobs/prices/a/init.lua": None,
        "a.lua": digest_of(b"return 1"),
    }
    assert set(sources.dependencies(JOB, 2).values()) == {None}
    assert sources.dependencies(JobId("other"), 1) == {}


async def test_a_generation_goes_on_with_what_it_first_found_and_the_next_has_what_is_there(tmp_path: Path) -> None:
    write(tmp_path, "b.lua", b"return 1")
    sources = Sources(tmp_path)
    assert await sources.find(JOB, 1, FOLDER, b"a") is None
    await sources.find(JOB, 1, FOLDER, b"b")
    write(tmp_path, "a.lua", b"return 2")
    write(tmp_path, "b.lua", b"return 2")
    for generation, found in ((1, [None, b"return 1"]), (2, [b"return 2", b"return 2"])):
        modules = [await sources.find(JOB, generation, FOLDER, name) for name in (b"a", b"b")]
        assert [module and module.source for module in modules] == found
    assert sources.changed(JOB, 1) == ["a.lua", "b.lua"]


async def test_a_file_that_was_refused_is_remembered_too(tmp_path: Path) -> None:
    """So that its repair reloads the job."""
    write(tmp_path, "a.lua", b"\x1bLua")
    sources = Sources(tmp_path)
    with pytest.raises(OpError):
        await sources.find(JOB, 1, FOLDER, b"a")
    assert sources.dependencies(JOB, 1)["a.lua"] == REFUSED.digest


async def test_what_a_version_names_is_read_with_it_and_what_that_names(tmp_path: Path) -> None:
    write(tmp_path, "a.lua", b"local b = require 'lib.b' require(name)")
    write(tmp_path, "lib/b.lua", b'return require("a")')
    sources = Sources(tmp_path)
    await sources.foresee(JOB, 1, FOLDER, [b"if x then require('a') require('../no') end"])
    write(tmp_path, "lib/b.lua", b"return 2")
    module = await sources.find(JOB, 1, FOLDER, b"lib.b")
    assert module is not None
    assert module.source == b'return require("a")'


async def test_what_was_forgotten_is_gone(tmp_path: Path) -> None:
    sources = Sources(tmp_path)
    await sources.find(JOB, 1, FOLDER, b"a")
    sources.forget(JOB, 1)
    sources.forget(JOB, 7)
    assert sources.dependencies(JOB, 1) == {}


async def test_a_script_that_invents_names_is_stopped(tmp_path: Path) -> None:
    sources = Sources(tmp_path)
    for number in range(MOST_PATHS // 4):
        await sources.find(JOB, 1, FOLDER, b"m%d" % number)
    with pytest.raises(OpError, match="too many modules"):
        await sources.find(JOB, 1, FOLDER, b"one.more")
    assert len(sources.dependencies(JOB, 1)) <= MOST_PATHS


@pytest.mark.parametrize("name", [b"x" * 252, b"x" * 255, b"a." + b"x" * 252])
async def test_a_name_that_no_file_can_have_leaves_nothing_that_could_not_be_loaded(
    tmp_path: Path, name: bytes
) -> None:
    """A note of a refused file would stay with the job, and be shown as what is wrong with it."""
    sources = Sources(tmp_path)

    assert await sources.find(JOB, 1, FOLDER, name) is None
    assert REFUSED.digest not in sources.dependencies(JOB, 1).values()
    assert sources.changed(JOB, 1) == []
