from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest
from msgspec import structs
from msgspec.structs import replace

from spyweb.clock import RealClock
from spyweb.errors import OpError
from spyweb.extraction.extractor import open_extractor
from spyweb.ops.files.files import LARGEST_TEXT
from spyweb.ops.world import Call
from spyweb.permissions.policy import FilesRule, Grants, policy_of
from tests.fakes.ops import ask, make_call, make_world, table

CHANGED = {"changed": True, "message": "written"}
OCTAL = "field 'mode': octal digits up to 777 expected, got "
UNCHANGED = {"changed": False, "message": "unchanged"}
WOULD = {"changed": True, "message": "it would be written"}


@pytest.fixture
def call(tmp_path: Path) -> Call:
    (tmp_path / "jobs/prices").mkdir(parents=True)
    return make_call(make_world(root=tmp_path))


@pytest.fixture
async def searching(call: Call) -> AsyncIterator[Call]:
    """A call that has a process for regular expressions."""
    async with open_extractor(RealClock(), limit=1.0) as extractor:
        yield structs.replace(call, world=replace(call.world, extractor=extractor))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "jobs/prices"


async def outcome(call: Call, name: str, **fields: object) -> dict[str, object]:
    found, problem = await ask(call, name, table(**fields))
    assert problem is None
    assert isinstance(found, dict)
    return {key: value for key, value in found.items() if key != "checksum"}


async def problem(call: Call, name: str, **fields: object) -> object:
    found, text = await ask(call, name, table(**fields))
    assert found is None
    return text


async def refused(call: Call, name: str, **fields: object) -> str:
    with pytest.raises(OpError) as error:
        await ask(call, name, table(**fields))
    return str(error.value)


async def test_a_copy_is_made_once(call: Call, folder: Path, tmp_path: Path) -> None:
    (folder / "a").write_text("one")
    (tmp_path / "shared").mkdir()
    assert await outcome(call, "file.copy", src=b"a", dest=b"./b", check=True) == WOULD
    assert not (folder / "b").exists()
    assert await outcome(call, "file.copy", src=b"a", dest=b"./b") == CHANGED
    assert await outcome(call, "file.copy", src=b"a", dest=b"b", mode=b"0644") == UNCHANGED
    assert await outcome(call, "file.copy", src=b"b", dest=b"shared/b", delegate_to=b"agent1") == CHANGED
    assert (tmp_path / "shared/b").read_text() == "one"
    assert (await ask(call, "file.copy", table(src=b"a", dest=b"b")))[0]["checksum"] == (  # type: ignore[index]
        "7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed"
    )


async def test_the_folder_of_the_job_is_made_at_first_need(call: Call, folder: Path) -> None:
    folder.rmdir()
    assert await outcome(call, "file.mkdir", path=b"a/b", check=True) == {
        "changed": True,
        "message": "it would be made",
    }
    assert await outcome(call, "file.line", path=b"c", line=b"x", check=True) == WOULD
    assert await outcome(call, "file.remove", path=b"c") == {"changed": False, "message": "it is not there"}
    assert await ask(call, "file.stat", table(path=b"c")) == [{"exists": False}, None]
    assert not folder.exists()
    assert await outcome(call, "file.mkdir", path=b"a/b", mode=700) == {"changed": True, "message": "made"}
    assert (folder / "a/b").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    ("before", "fields", "after"),
    [
        ("", {"line": b"x"}, "x\n"),
        ("a\n", {"line": b"x"}, "a\nx\n"),
        ("a", {"line": b"x"}, "a\nx\n"),
        ("a\nx\nb\n", {"line": b"x"}, None),
        ("a\r\nx\r\n", {"line": b"x"}, None),
        ("a\nx", {"line": b"x"}, None),
        ("a\n", {"line": b""}, "a\n\n"),
        ("a\n\nb\n", {"line": b""}, None),
        ("x\na\nx\n", {"line": b"x", "state": b"absent"}, "a\n"),
        ("a\n", {"line": b"x", "state": b"absent"}, None),
        ("a\nx", {"line": b"x", "state": b"absent"}, "a"),
        ("#Port 1\nPort 2\nEnd\n", {"line": b"Port 3", "regexp": b"^#?Port "}, "#Port 1\nPort 3\nEnd\n"),
        ("Port 2\r\nEnd\r\n", {"line": b"Port 3", "regexp": b"^Port "}, "Port 3\r\nEnd\r\n"),
        ("a\nPort 3\n", {"line": b"Port 3", "regexp": b"^Port "}, None),
        ("a\n", {"line": b"x", "regexp": b"^b"}, "a\nx\n"),
        ("a\nx\n", {"line": b"x", "regexp": b"^b"}, None),
        ("a\nab\nb\n", {"regexp": b"^a", "state": b"absent"}, "b\n"),
        ("a\n\nb\n", {"regexp": b"^$", "state": b"absent"}, "a\nb\n"),
        ("", {"line": b"x", "regexp": b""}, "x\n"),
    ],
)
async def test_a_line_is_kept_or_kept_out(
    searching: Call, folder: Path, before: str, fields: dict[str, object], after: str | None
) -> None:
    file = folder / "conf"
    file.write_bytes(before.encode())
    expected = UNCHANGED if after is None else CHANGED
    checked = await outcome(searching, "file.line", path=b"conf", check=True, **fields)
    assert checked == (UNCHANGED if after is None else WOULD)
    assert file.read_bytes() == before.encode()
    assert await outcome(searching, "file.line", path=b"conf", **fields) == expected
    assert file.read_bytes() == (before if after is None else after).encode()
    assert await outcome(searching, "file.line", path=b"conf", **fields) == UNCHANGED


async def test_an_expression_that_takes_for_ever_is_ended(searching: Call, folder: Path) -> None:
    (folder / "conf").write_text("a" * 60 + "b\n")
    text = await problem(searching, "file.line", path=b"conf", line=b"x", regexp=b"^(a+)+$")
    assert text == "file.line: 'conf': looking for the lines took longer than 1 s"
    text = await problem(searching, "file.line", path=b"conf", line=b"x", regexp=b"(")
    assert str(text).startswith("file.line: 'conf': this is not a regular expression: ")


async def test_a_line_that_is_written_by_others_all_the_time_is_given_up(
    call: Call, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call.world.files, "put", lambda *_given, **_named: None)
    text = await problem(call, "file.line", path=b"conf", line=b"x")
    assert text == "file.line: 'conf': it is written by others all the time"


async def test_what_the_disk_says_is_nil_and_a_message(call: Call, folder: Path) -> None:
    (folder / "a").write_text("one")
    (folder / "link").symlink_to("/etc/passwd")
    assert await problem(call, "file.copy", src=b"none", dest=b"b") == "file.copy: 'b': No such file or directory"
    assert await problem(call, "file.copy", src=b"a", dest=b"x/b") == "file.copy: 'x/b': No such file or directory"
    assert await problem(call, "file.copy", src=b"link", dest=b"b") == (
        "file.copy: 'b': it leads out of the folder that is permitted"
    )
    assert await problem(call, "file.copy", src=b"a", dest=b"link") == "file.copy: 'link': it is a symbolic link"
    (folder / "large").write_bytes(bytes(LARGEST_TEXT + 1))
    assert "at most 10485760 are allowed" in str(await problem(call, "file.line", path=b"large", line=b"x"))


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        (b"../a", "'..' is not allowed in it"),
        (b"a/../../b", "'..' is not allowed in it"),
        (b"shared/../a", "'..' is not allowed in it"),
        (b"a.lua", "spyweb itself loads, or writes, files of this name"),
        (b"shared/x/A.LUA", "spyweb itself loads, or writes, files of this name"),
        (b"deploy.sloth", "spyweb itself loads, or writes, files of this name"),
        (b"config.toml", "spyweb itself loads, or writes, files of this name"),
        (b"shared/Jobs.toml", "spyweb itself loads, or writes, files of this name"),
        (b"hooks.log", "spyweb itself loads, or writes, files of this name"),
        (b"init.lua/x", "spyweb itself loads, or writes, files of this name"),
        (b"shared/a.Lua/b/x", "spyweb itself loads, or writes, files of this name"),
        (b"", "the name of a file expected"),
        (b"a\0b", "control characters are not allowed in it"),
        (b"\xff", "a file's name must be UTF-8"),
    ],
)
async def test_a_name_that_nobody_may_write_raises_and_does_nothing(
    call: Call, folder: Path, tmp_path: Path, path: bytes, reason: str
) -> None:
    (folder / "a").write_text("one")
    before = sorted(tmp_path.rglob("*"))
    for name, fields in (
        ("file.copy", {"src": b"a", "dest": path}),
        ("file.line", {"path": path, "line": b"x"}),
        ("file.mkdir", {"path": path}),
        ("file.remove", {"path": path}),
    ):
        assert (await refused(call, name, **fields)).endswith(reason)
        assert (await refused(call, name, check=True, **fields)).endswith(reason)
    assert sorted(tmp_path.rglob("*")) == before


async def test_what_spyweb_loads_may_be_read(call: Call, folder: Path) -> None:
    (folder / "init.lua").write_text("x")
    assert await outcome(call, "file.copy", src=b"init.lua", dest=b"copy.txt") == CHANGED
    assert (await outcome(call, "file.stat", path=b"init.lua"))["size"] == 1


async def test_an_absolute_path_is_refused_unless_it_is_permitted(call: Call, tmp_path: Path) -> None:
    text = (
        "file.copy: 'prices' may not use /etc/app.ini: "
        'add "/etc/app.ini" to [jobs.prices.permissions] files in config.toml'
    )
    (tmp_path / "jobs/prices/a").write_text("one")
    assert await refused(call, "file.copy", src=b"a", dest=b"/etc/app.ini") == text
    assert "may not use /etc/passwd" in await refused(call, "file.copy", src=b"/etc/passwd", dest=b"a")
    assert "'..' is not allowed in it" in await refused(call, "file.stat", path=b"/etc/../etc/passwd")
    root = tmp_path / "etc"
    (root / "inner").mkdir(parents=True)
    (root / "out").symlink_to("/tmp")
    permitted = structs.replace(call, policy=policy_of(Grants(files=FilesRule(frozenset({"job"}), (str(root),)))))
    path = f"{root}/inner/app.ini".encode()
    assert await outcome(permitted, "file.copy", src=b"a", dest=path) == CHANGED
    assert await outcome(permitted, "file.copy", src=b"a", dest=path) == UNCHANGED
    assert (root / "inner/app.ini").read_text() == "one"
    assert "it leads out" in str(await problem(permitted, "file.copy", src=b"a", dest=f"{root}/out/x".encode()))
    assert "may not use the folder shared/" in await refused(permitted, "file.stat", path=b"shared/a")
    assert "the whole folder" in await refused(permitted, "file.remove", path=str(root).encode())
    assert "spyweb itself loads" in await refused(permitted, "file.mkdir", path=f"{root}/x.lua".encode())
    assert "spyweb itself loads" in await refused(permitted, "file.mkdir", path=f"{root}/init.lua/x".encode())
    without = structs.replace(call, policy=policy_of(Grants(files=FilesRule(frozenset()))))
    for name in ("file.stat", "file.remove", "file.mkdir"):
        assert "may not use its own folder" in await refused(without, name, path=b"a")
    with pytest.raises(OpError, match=r"template\.render: 'prices' may not use its own folder"):
        await ask(without, "_template", b"template.render", b"a")


@pytest.mark.parametrize(
    ("name", "fields", "reason"),
    [
        ("file.copy", {"dest": b"b"}, "field 'src': string expected, got nil"),
        ("file.copy", {"src": b"a", "dest": True}, "field 'dest': string expected, got boolean"),
        ("file.copy", {"src": b"a", "dest": b"b", "check": 1}, "field 'check': boolean expected, got number"),
        ("file.copy", {"src": b"a", "dest": b"b", "owner": b"root"},
         "there is no field 'owner', but check, dest, mode, src"),
        ("file.copy", {"src": b"a", "dest": b"b", "mode": b"rw"}, OCTAL + "rw"),
        ("file.copy", {"src": b"a", "dest": b"b", "mode": 4755}, OCTAL + "4755"),
        ("file.copy", {"src": b"a", "dest": b"b", "mode": b"-1"}, OCTAL + "-1"),
        ("file.line", {"path": b"a", "line": b"x\ny"}, "field 'line': one line expected"),
        ("file.line", {"path": b"a"}, "field 'line': string expected, got nil"),
        ("file.line", {"path": b"a", "line": b"x", "state": b"gone"},
         "field 'state': \"present\" or \"absent\" expected, got gone"),
    ],
)  # fmt: skip
async def test_a_wrong_type_raises(call: Call, name: str, fields: dict[str, object], reason: str) -> None:
    assert await refused(call, name, **fields) == f"bad argument #1 to '{name}' ({reason})"


async def test_a_template_is_read_and_its_result_written(call: Call, folder: Path) -> None:
    (folder / "a.tmpl").write_text("{{.x}}")
    assert await ask(call, "_template", b"template.render", b"./a.tmpl") == [b"{{.x}}", None]
    assert await ask(call, "_template", b"template.render", b"none") == [
        None,
        "template.render: 'none': No such file or directory",
    ]
    fields = table(src=b"a.tmpl", dest=b"a.conf", mode=b"600")
    assert (await ask(call, "_template_file", fields, b"5"))[0]["message"] == "written"  # type: ignore[index]
    assert (folder / "a.conf").read_text() == "5"
    with pytest.raises(OpError, match=r"^file\.template: 'a\.lua': "):
        await ask(call, "_template_file", table(dest=b"a.lua"), b"5")
    with pytest.raises(
        OpError,
        match=r"^bad argument #1 to 'file\.template' \(there is no field 'to', but check, dest, mode, src, text, vars",
    ):
        await ask(call, "_template_file", table(to=b"a.lua"), b"5")


async def test_large_files_leave_threads_to_the_other_ops(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    gate, begun = Event(), list[object]()
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(4))  # as on a small machine

    def wait(*given: object, **_named: object) -> dict[str, object]:
        begun.append(given)
        gate.wait()
        return {}

    monkeypatch.setattr(call.world.files, "stat", wait)
    async with asyncio.TaskGroup() as tasks:
        for number in range(20):
            tasks.create_task(ask(call, "file.stat", table(path=b"f%d" % number)))
        try:
            async with asyncio.timeout(5):
                assert await ask(call, "fs_read", b"none.txt") == [None]
            assert len(begun) <= 3
        finally:
            gate.set()
    assert len(begun) == 20
