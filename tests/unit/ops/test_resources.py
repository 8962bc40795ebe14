"""What calls of `file.*` and of commands leave in the scope `resources`, and who may write there."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path

import pytest
from msgspec import structs

from spyweb.errors import OpError, StoreError
from spyweb.model import JobId, OnStoreError, RunId, Value
from spyweb.ops import catalog
from spyweb.ops.files.files import Files
from spyweb.ops.resources import (
    MODULES,
    NAMESPACE,
    BadResource,
    Expected,
    Kept,
    job_of,
    key_of,
    read_resource,
    to_value,
)
from spyweb.ops.world import Call
from spyweb.permissions.policy import FilesRule, Grants, Policy
from tests.fakes.clock import FakeClock
from tests.fakes.commands import RESULT, FakeCommands
from tests.fakes.ops import ask, make_call, make_world, table

ONE = hashlib.sha256(b"one").hexdigest()


@pytest.fixture
def call(tmp_path: Path) -> Call:
    (tmp_path / "jobs/prices").mkdir(parents=True)
    (tmp_path / "jobs/prices/a").write_text("one")
    (tmp_path / "etc").mkdir()
    files = FilesRule(frozenset({"job", "shared"}), (str(tmp_path / "etc"),))
    policy = Policy(granted=Grants(exec=None, files=files))
    world = make_world(root=tmp_path, commands=FakeCommands())
    return make_call(world, policy=policy, run=RunId(7), is_recorded=True)


async def rows(call: Call) -> dict[str, Value]:
    await asyncio.sleep(0)  # what nobody waits for is asked for by now
    values = call.world.store.values
    return {key.decode(): await values.get(NAMESPACE, key) for key in await values.keys(NAMESPACE)}


async def rewritten(call: Call, name: str, **fields: object) -> dict[bytes, object]:
    """What the only row says, but for its time."""
    await ask(call, name, table(**fields))
    ((_, row),) = (await rows(call)).items()
    assert isinstance(row, dict)
    return {key: value for key, value in row.items() if isinstance(key, bytes) and key != b"at"}


async def test_each_call_leaves_its_checksum_its_time_and_its_run(call: Call, tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    await ask(call, "file.copy", table(src=b"a", dest=b"./b", mode=b"0600"))
    await ask(call, "file.mkdir", table(path=b"shared/x"))
    await ask(call, "file.remove", table(path=b"gone"))
    await ask(call, "file.line", table(path=str(tmp_path / "etc/hosts").encode(), line=b"x"))
    await ask(call, "_template_file", table(dest=b"t"), b"one")
    found = await rows(call)
    assert list(found) == [
        "prices:file.copy:b",
        f"prices:file.line:{tmp_path}/etc/hosts",
        "prices:file.mkdir:shared/x",
        "prices:file.remove:gone",
        "prices:file.template:t",
    ]
    now = call.world.clock.now_ms()
    assert found["prices:file.copy:b"] == {
        b"checksum": ONE.encode(), b"at": now / 1000, b"run": 7, b"call": 1, b"expected": b"file", b"target": b"b",
        b"changed": True,
        b"mode": b"0600",
    }  # fmt: skip
    assert [read_resource(key.encode(), row).kept.expected for key, row in found.items()] == [
        Expected.FILE, Expected.LINE, Expected.FOLDER, Expected.ABSENT, Expected.FILE,
    ]  # fmt: skip


async def test_a_removal_takes_the_place_of_the_other_rows_and_is_forgotten_after_a_while(call: Call) -> None:
    (Path(call.world.files.root) / "jobs/prices/out").touch()
    await ask(call, "exec.run", b"make", table(creates=b"out"))
    await ask(call, "file.copy", table(src=b"a", dest=b"out"))
    await ask(call, "file.line", table(path=b"out", line=b"x"))
    await ask(call, "file.copy", table(src=b"a", dest=b"other"))
    await ask(call, "file.remove", table(path=b"out"))
    assert list(await rows(call)) == ["prices:file.copy:other", "prices:file.remove:out"]
    clock = call.world.clock
    assert isinstance(clock, FakeClock)
    await clock.turn(30 * 86_400 - 1)
    assert len(await rows(call)) == 2
    await clock.turn(2)
    assert list(await rows(call)) == ["prices:file.copy:other"]


def test_the_modules_are_those_that_leave_rows() -> None:
    families = [name for name in sorted(catalog.CATALOGUE) if name.startswith("file.") and name != "file.stat"]
    assert set(MODULES) == {*families, "file.template", "exec.run", "cmd"}


async def test_a_call_that_changes_nothing_renews_its_row(call: Call) -> None:
    await ask(call, "file.copy", table(src=b"a", dest=b"b"))
    later = make_call(call.world, policy=call.policy, run=RunId(8), is_recorded=True)
    assert (await rewritten(later, "file.copy", src=b"a", dest=b"b"))[b"run"] == 8


async def test_a_look_a_failure_and_a_refusal_leave_nothing(call: Call) -> None:
    await ask(call, "file.copy", table(src=b"a", dest=b"b", check=True))
    await ask(call, "file.copy", table(src=b"none", dest=b"b"))
    await ask(call, "file.line", table(path=b"c", line=b"x", check=True))
    await ask(call, "file.stat", table(path=b"a"))
    with pytest.raises(OpError):
        await ask(call, "file.mkdir", table(path=b"/root/x"))
    assert await rows(call) == {}


async def test_a_run_that_is_not_on_record_leaves_nothing(call: Call) -> None:
    unrecorded = make_call(call.world, policy=call.policy)
    await ask(unrecorded, "file.copy", table(src=b"a", dest=b"b"))
    assert await rows(call) == {}


async def test_a_line_is_told_unless_only_an_expression_says_what_must_not_be_there(call: Call) -> None:
    assert (await rewritten(call, "file.line", path=b"a", line=b"x"))[b"line"] == b"x"
    row = await rewritten(call, "file.line", path=b"a", line=b"x" * 20_000)
    assert b"line" not in row
    row = await rewritten(call, "file.line", path=b"a", line=b"y", state=b"absent")
    assert (row[b"line"], row[b"expected"]) == (b"y", b"no line")


class Killed(BaseException):
    """The daemon ends here."""


@pytest.mark.parametrize("is_done", [False, True])
async def test_a_crash_never_records_what_was_not_done(
    is_done: bool, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = Files.copy

    def crash(*given: object, **named: object) -> None:
        if is_done:
            copy(*given, **named)  # type: ignore[arg-type]
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Files, "copy", crash)
        with pytest.raises(Killed):
            await ask(call, "file.copy", table(src=b"a", dest=b"b"))
    assert (tmp_path / "jobs/prices/b").exists() is is_done
    assert await rows(call) == {}
    assert await rewritten(call, "file.copy", src=b"a", dest=b"b"), "the next call makes it good"


async def test_a_row_that_can_not_be_written_marks_the_run(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(*_given: object, **_named: object) -> None:
        raise StoreError("the disk is full")

    monkeypatch.setattr(call.world.store.values, "transform", lambda *_, **__: asyncio.ensure_future(refuse()))
    for _ in range(2):  # the second finds the file as it should be
        (outcome,) = (await ask(call, "file.copy", table(src=b"a", dest=b"b")))[:1]
        assert isinstance(outcome, dict)
        await asyncio.sleep(0.001)
    assert call.tally.storage_errors == 2
    strict = make_call(
        call.world, policy=call.policy, is_recorded=True, on_store_error=OnStoreError.RAISE, folder=call.folder
    )
    with pytest.raises(OpError, match=r"file\.copy: the disk is full"):
        await ask(strict, "file.copy", table(src=b"a", dest=b"c"))


async def test_a_command_leaves_a_row_where_it_says_what_it_is_for(call: Call, tmp_path: Path) -> None:
    await ask(call, "exec.run", b"make")
    assert await rows(call) == {}
    await ask(call, "exec.run", b"make", table(creates=b"out"))
    assert await rows(call) == {}, "it did not make it"
    (tmp_path / "jobs/prices/out").touch()
    await ask(call, "exec.run", b"make", table(creates=b"out", check=True))
    assert await rows(call) == {}
    await ask(call, "exec.run", b"make", table(creates=b"out"))
    await ask(call, "cmd", table(command=[b"sh", b"-c", b"x"], creates=b"../../etc"))
    await ask(call, "exec.run", b"make  all", table(unless=b"true"))
    found = await rows(call)
    assert list(found) == ["prices:cmd:" + str(tmp_path / "etc"), "prices:exec.run:make all", "prices:exec.run:out"]


async def test_in_a_dry_run_what_is_as_it_should_be_leaves_no_row_either(call: Call, tmp_path: Path) -> None:
    (tmp_path / "jobs/prices/out").touch()
    dry = structs.replace(call, is_dry=True)
    await ask(dry, "exec.run", b"make", table(creates=b"out"))
    await ask(dry, "file.copy", table(src=b"a", dest=b"a2"))
    await ask(dry, "file.remove", table(path=b"none"))
    assert await rows(call) == {}


async def test_a_command_that_fails_leaves_no_row(call: Call) -> None:
    runner = call.world.commands
    assert isinstance(runner, FakeCommands)
    failed = structs.replace(RESULT, exit_code=1)
    runner.results = [failed, failed]
    await ask(call, "exec.run", b"make", table(unless=b"test"))
    assert await rows(call) == {}


@pytest.mark.parametrize(
    ("name", "fields"), [("state.set", {"value": 1}), ("state.delete", {}), ("state.update", {"ops": []})]
)
async def test_scripts_can_read_the_scope_and_not_write_it(call: Call, name: str, fields: dict[str, object]) -> None:
    await ask(call, "file.copy", table(src=b"a", dest=b"b"))
    key = b"prices:file.copy:b"
    with pytest.raises(OpError) as error:
        await ask(call, name, table(scope=b"resources", key=key, **fields))
    assert str(error.value) == f"{name}: the scope resources is written by spyweb alone"
    with pytest.raises(OpError, match="written by spyweb alone"):
        await ask(call, "_at", b"other", name.encode(), 1, table(scope=b"resources", key=key, **fields))
    (row,) = await ask(call, "state.get", table(scope=b"resources", key=key))
    assert isinstance(row, dict)
    assert row[b"checksum"] == ONE.encode()
    assert await ask(call, "state.keys", table(scope=b"resources")) == [[key]]


def test_a_long_target_has_a_key_of_its_own() -> None:
    names = [key_of(JobId("x"), Kept(module="m", target="ä" * 400 + end, expected=Expected.FILE), 512) for end in "ab"]
    assert len(set(names)) == 2
    assert max(map(len, names)) <= 512
    assert all(name.decode().startswith("x:m:ää") for name in names)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"text", "it is no table"),
        ({b"target": 5}, r"at `\$\.target`"),
        ({b"target": b"\xff"}, "codec can't decode"),
        ({b"expected": b"other"}, "'other' is not a valid Expected"),
        ({b"checksum": 5}, r"at `\$\.checksum`"),
        ({b"mode": b"9"}, "invalid literal"),
        ({b"at": True}, r"at `\$\.at`"),
        ({b"at": float("inf")}, "cannot convert"),
        ({b"run": b"x"}, r"at `\$\.run`"),
        ({b"target": b""}, "its target is no path"),
        ({b"target": b"a" * 10_000}, "its target is no path"),
        ({b"line": 1}, r"at `\$\.line`"),
    ],
)
def test_a_row_of_another_version_or_a_damaged_one_is_told(value: Value, reason: str) -> None:
    good = to_value(Kept(module="m", target="a", expected=Expected.FILE), 5, RunId(1), 1)
    assert isinstance(good, dict)
    damaged = {**good, **value} if isinstance(value, dict) else value
    with pytest.raises(BadResource, match=reason.replace("(", r"\(")):
        read_resource(b"x:m:a", damaged)
    with pytest.raises(BadResource, match="JOB:MODULE:TARGET"):
        read_resource(b"x", good)


def test_a_row_is_read_as_it_was_written() -> None:
    kept = Kept(module="file.line", target="a:b", expected=Expected.LINE, checksum="c", mode=0o644, line=b"\xff")
    found = read_resource(b"x:file.line:a:b", to_value(kept, 1_234, RunId(5), 2))
    assert (found.job, found.kept, found.at_ms, found.run, found.number) == ("x", kept, 1_234, 5, 2)
    assert job_of(b"x:y") == "x"
