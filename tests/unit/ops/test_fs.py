from __future__ import annotations

from pathlib import Path

import pytest

from spyweb.errors import OpError
from spyweb.ops import catalog
from spyweb.ops.world import Call
from tests.fakes.ops import ask, make_call, make_world


@pytest.fixture
def call(tmp_path: Path) -> Call:
    return make_call(make_world(root=tmp_path), memory_limit=1 << 20)


def put(root: Path, path: str, content: bytes) -> None:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)


async def refused(call: Call, name: str, *arguments: object) -> str:
    with pytest.raises(OpError) as error:
        await ask(call, name, *arguments)
    return str(error.value)


async def test_shared_is_the_projects_own_folder(call: Call, tmp_path: Path) -> None:
    await ask(call, "fs_overwrite", b"shared/a.json", b"{}")
    await ask(call, "fs_append", b"shared/b/c.jsonl", b"1\n")
    assert (tmp_path / "shared/a.json").read_bytes() == b"{}"
    assert (tmp_path / "shared/b/c.jsonl").read_bytes() == b"1\n"


async def test_a_read_falls_back_to_shared_but_not_the_other_way_round(call: Call, tmp_path: Path) -> None:
    put(tmp_path, "shared/both.txt", b"theirs")
    put(tmp_path, "shared/only.txt", b"theirs")
    put(tmp_path, "jobs/prices/both.txt", b"mine")
    put(tmp_path, "jobs/prices/mine.txt", b"mine")
    assert await ask(call, "fs_read", b"both.txt") == [b"mine"]
    assert await ask(call, "fs_read", b"only.txt") == [b"theirs"]
    assert await ask(call, "fs_read", b"shared/both.txt") == [b"theirs"]
    assert await ask(call, "fs_read", b"shared/mine.txt") == [None]


async def test_pictures_are_for_fs_read_binary(call: Call, tmp_path: Path) -> None:
    put(tmp_path, "jobs/prices/a.png", b"\x89PNG\0\xff")
    assert await ask(call, "fs_read_binary", b"a.png") == [b"\x89PNG\0\xff"]
    assert "a name that ends in one of these expected" in await refused(call, "fs_read", b"a.png")
    assert "a name that ends in one of these expected" in await refused(call, "fs_overwrite", b"a.png", b"x")


@pytest.mark.parametrize("name", [name for name in sorted(catalog.CATALOGUE) if name.startswith("fs_")])
async def test_what_leads_out_raises_in_every_function(call: Call, name: str) -> None:
    content = [b"x"] if name in ("fs_append", "fs_overwrite") else []
    assert await refused(call, name, b"../a.csv", *content) == f"{name}: '../a.csv': '..' is not allowed in it"
    assert await refused(call, name, b"/a.csv", *content) == f"{name}: '/a.csv': an absolute path is not allowed"


async def test_a_file_that_the_vm_could_not_hold_raises(call: Call, tmp_path: Path) -> None:
    put(tmp_path, "jobs/prices/a.txt", bytes((1 << 20) + 1))
    assert await refused(call, "fs_read", b"a.txt") == (
        "fs_read: 'a.txt': it has 1048577 bytes, at most 1048576 are allowed"
    )


async def test_what_the_system_says_is_told(call: Call, tmp_path: Path) -> None:
    put(tmp_path, "jobs/prices", b"a file where the folder should be")
    text = await refused(call, "fs_append", b"a.csv", b"x")
    assert text == "fs_append: 'a.csv': Not a directory"


@pytest.mark.parametrize("name", ["fs_append", "fs_overwrite"])
@pytest.mark.parametrize("file", [b"init.lua/a.txt", b"shared/sub/X.Sloth/a.txt", b"config.toml/a/b.txt"])
async def test_no_folder_is_made_that_spyweb_would_take_for_a_file_of_its_own(
    call: Call, tmp_path: Path, name: str, file: bytes
) -> None:
    assert "spyweb itself loads, or writes, files of this name" in await refused(call, name, file, b"x")
    assert list(tmp_path.iterdir()) == []
