"""What is told of files and folders that are not as they were left."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from msgspec import structs

from spyweb.model import JobId, JobSpec, RunId, Value
from spyweb.ops.files import files
from spyweb.ops.resources import NAMESPACE
from spyweb.ops.world import Call
from spyweb.permissions.policy import FilesRule, Grants, Policy
from spyweb.store.model.entries import Put
from spyweb.subjects.drift.service import DriftService
from spyweb.subjects.drift.views import DriftView, describe_drift
from tests.fakes.commands import FakeCommands
from tests.fakes.drifting import make_drift, permitting
from tests.fakes.harness import make_spec
from tests.fakes.ops import PRICES, ask, make_call, make_world, table

OTHER = JobId("other")


@dataclass
class Place:
    call: Call
    root: Path
    specs: dict[JobId, JobSpec]
    drift: DriftService

    @property
    def folder(self) -> Path:
        return self.root / "jobs/prices"

    async def keep(self, name: str, *more: object, job: JobId = PRICES, **fields: object) -> None:
        call = make_call(
            self.call.world, job=job, policy=self.call.policy, run=RunId(7), is_recorded=True, tally=self.call.tally
        )
        outcome, problem = await ask(call, name, table(**fields), *more)
        assert outcome is not None, problem

    async def found(self, job: JobId | None = None) -> list[tuple[str, str, str]]:
        report = await self.drift.check(job)
        return [(each.resource.partition(":")[2], each.expected, each.actual) for each in report.differences]

    async def put(self, key: bytes, value: Value) -> None:
        await self.call.world.store.values.transform(NAMESPACE, key, lambda _: Put(value))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    root = Path(os.path.realpath(tmp_path))
    for name in ("jobs/prices", "jobs/other", "shared", "etc"):
        (root / name).mkdir(parents=True)
    (root / "jobs/prices/a").write_text("one")
    (root / "jobs/other/a").write_text("two")
    world = make_world(root=root, commands=FakeCommands())
    call = make_call(world, policy=permitting(root / "etc"))
    specs = {job: make_spec(job, policy=call.policy) for job in (PRICES, OTHER)}
    return Place(call, root, specs, make_drift(world.store, world.clock, specs, world.files))


@pytest.mark.parametrize("slice_s", [9, -1])
async def test_what_was_edited_removed_or_put_there_is_told_in_one_slice_and_in_many(
    place: Place, slice_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spyweb.subjects.drift.service.SLICE_S", slice_s)
    for name in ("b", "c", "d"):
        await place.keep("file.copy", src=b"a", dest=name.encode(), mode=b"0600")
    await place.keep("file.mkdir", path=b"shared/x", mode=b"0700")
    await place.keep("file.mkdir", path=b"shared/y")
    await place.keep("file.remove", path=b"none")
    (place.folder / "b").write_text("two")
    (place.folder / "c").unlink()
    (place.folder / "d").chmod(0o644)
    (place.root / "shared/x").chmod(0o755)
    (place.root / "shared/y").rmdir()
    (place.root / "shared/y").write_text("now a file")
    (place.folder / "none").symlink_to("/etc/passwd")
    assert await place.found() == [
        ("file.copy:b", "file 7692c3ad3540 0600", "file 3fc4ccfe7458 0600"),
        ("file.copy:c", "file 7692c3ad3540 0600", "not there"),
        ("file.copy:d", "file 7692c3ad3540 0600", "file 7692c3ad3540 0644"),
        ("file.mkdir:shared/x", "folder 0700", "folder 0755"),
        ("file.mkdir:shared/y", "folder", "file of 10 bytes 0644"),
        ("file.remove:none", "not there", "link 0777"),
    ]


@pytest.mark.parametrize(
    ("state", "text", "actual"),
    [
        (b"present", "y\r\nx\r\n", None),
        (b"present", "x", None),
        (b"present", "y\n", "no line 'x'"),
        (b"present", None, "not there"),
        (b"absent", "y\n", None),
        (b"absent", None, None),
        (b"absent", "y\nx\n", "line 'x'"),
    ],
)
async def test_of_a_file_with_a_line_only_the_line_counts(
    place: Place, state: bytes, text: str | None, actual: str | None
) -> None:
    (place.folder / "conf").write_text("z\n")
    await place.keep("file.line", path=b"conf", line=b"x", state=state)
    (place.folder / "conf").unlink()
    if text is not None:
        (place.folder / "conf").write_text(text)
    expected = "line 'x'" if state == b"present" else "no line 'x'"
    assert await place.found() == ([] if actual is None else [("file.line:conf", expected, actual)])


async def test_what_a_command_creates_is_looked_for_and_no_command_is_run(place: Place) -> None:
    (place.folder / "out").touch()
    await place.keep("cmd", command=b"make", creates=b"out")
    await place.keep("cmd", command=b"make", unless=b"test")
    commands = place.call.world.commands
    assert isinstance(commands, FakeCommands)
    ran = len(commands.commands)
    assert await place.found() == []
    (place.folder / "out").unlink()
    assert await place.found() == [("cmd:out", "there", "not there")]
    assert len(commands.commands) == ran
    place.specs[PRICES] = structs.replace(place.specs[PRICES], policy=Policy())
    assert await place.found() == [("cmd:out", "there", "not checked: it may not run commands any more")]


async def test_a_target_that_the_job_may_not_use_any_more_is_not_looked_at(place: Place) -> None:
    hosts = place.root / "etc/hosts"
    await place.keep("file.line", path=str(hosts).encode(), line=b"x")
    await place.keep("file.mkdir", path=b"shared/x")
    await place.keep("file.mkdir", path=b"x")
    place.specs[PRICES] = structs.replace(
        place.specs[PRICES], policy=Policy(granted=Grants(files=FilesRule(frozenset())))
    )
    assert [actual for _, _, actual in await place.found()] == [
        f"not checked: it may not use {hosts} any more",
        "not checked: it may not use the folder shared/ any more",
        "not checked: it may not use its own folder any more",
    ]


async def test_a_link_that_was_put_there_is_not_followed(place: Place) -> None:
    await place.keep("file.mkdir", path=b"shared/x")
    await place.keep("file.copy", src=b"a", dest=b"shared/x/b")
    (place.root / "shared/x/b").unlink()
    (place.root / "shared/x").rmdir()
    (place.root / "outside").mkdir()
    (place.root / "outside/b").write_text("one")
    (place.root / "shared/x").symlink_to(place.root / "outside")
    assert [actual for _, _, actual in await place.found()] == [
        "it leads out of the folder that is permitted",
        "it leads out of the folder that is permitted",
    ]


async def test_a_failure_of_the_disk_is_told(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_given: object, **_named: object) -> None:
        raise PermissionError(13, "Permission denied")

    await place.keep("file.copy", src=b"a", dest=b"b")
    monkeypatch.setattr(place.drift.files, "stat", fail)
    assert [actual for _, _, actual in await place.found()] == ["it can't be read: Permission denied"]


async def test_a_huge_file_is_told_by_its_size(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    await place.keep("file.copy", src=b"a", dest=b"b")
    await place.keep("file.line", path=b"c", line=b"x")
    monkeypatch.setattr(files, "LARGEST", 2)
    monkeypatch.setattr("spyweb.ops.drift.LARGEST_TEXT", 1)
    (place.folder / "b").write_bytes(b"huge")
    (place.folder / "c").write_bytes(b"huge")
    assert [actual for _, _, actual in await place.found()] == [
        "file of 4 bytes 0644",
        "it has 4 bytes, at most 1 are allowed",
    ]


@pytest.mark.parametrize(
    ("key", "value"),
    [(b"prices:file.copy:x", b"text"), (b"prices:x", {b"a": 1}), (b"prices:file.copy:\xff", [1]), (b"prices:", {})],
)
async def test_a_row_that_can_not_be_read_is_told(place: Place, key: bytes, value: Value) -> None:
    await place.put(key, value)
    ((_, _, actual),) = await place.found()
    assert actual.startswith("its row can't be read (")


@pytest.mark.parametrize("target", [b"../../../etc/passwd", b"a/../b", b"/etc/../x", b"a\nb", b"x" * 300])
async def test_a_target_that_no_call_could_have_written_is_not_opened(place: Place, target: bytes) -> None:
    await place.keep("file.copy", src=b"a", dest=b"b")
    values = place.call.world.store.values
    row = await values.get(NAMESPACE, b"prices:file.copy:b")
    assert isinstance(row, dict)
    await place.put(b"prices:file.copy:b", {**row, b"target": target})
    ((_, _, actual),) = await place.found()
    assert "is not allowed in it" in actual or "are not allowed in it" in actual or "too long" in actual


async def test_rows_of_a_job_that_is_gone_are_a_remark(place: Place) -> None:
    await place.keep("file.copy", src=b"a", dest=b"b")
    await place.keep("file.copy", src=b"a", dest=b"b", job=OTHER)
    del place.specs[OTHER]
    (place.root / "jobs/other/b").unlink()
    report = await place.drift.check(None)
    assert (report.checked, list(report.differences)) == (1, [])
    assert list(report.remarks) == [
        "1 resource of other not checked: that job was removed; `spyweb state clear 'other:*' --scope resources` "
        "forgets them"
    ]
    broken = replace(place.drift, broken=lambda: {OTHER})
    assert list((await broken.check(OTHER)).remarks) == ["1 resource of other not checked: its file does not load"]
    elsewhere = replace(place.drift, is_elsewhere=lambda job: job == OTHER)
    remark = "1 resource not checked: of jobs of other nodes, which `spyweb drift JOB` asks"
    assert list((await elsewhere.check(None)).remarks) == [remark]


async def test_so_many_that_memory_would_matter_are_cut(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(250):
        await place.keep("file.mkdir", path=b"d%03d" % number)
    monkeypatch.setattr("spyweb.subjects.drift.service.MOST", 150)
    report = await place.drift.check(None)
    assert report.checked == 200, "whole pages"
    assert list(report.remarks) == ["only the first 200 resources were compared: there are more"]


async def test_two_jobs_that_keep_one_file_are_named(place: Place) -> None:
    for job in (PRICES, OTHER):
        await place.keep("file.copy", src=b"a", dest=b"shared/b", job=job)
    told = ("file.copy:shared/b", "file 7692c3ad3540", "file 3fc4ccfe7458 0644 (kept by other as well)")
    assert await place.found() == [told]
    assert await place.found(PRICES) == [told]
    assert await place.found(OTHER) == []


async def test_what_a_run_changes_meanwhile_is_no_difference(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    await place.keep("file.copy", src=b"a", dest=b"b")
    (place.folder / "b").write_text("two")
    compare, looks = place.drift._compare, list[int]()

    async def compare_and_write(*given: object) -> object:
        found = await compare(*given)  # type: ignore[arg-type]
        looks.append(len(found))
        if len(looks) == 1:
            await place.keep("file.copy", src=b"a", dest=b"b")
        return found

    monkeypatch.setattr(type(place.drift), "_compare", lambda _, *given: compare_and_write(*given))
    assert await place.found() == []
    assert looks == [1, 0]


@pytest.mark.parametrize(
    ("count", "told"),
    [(1, "1 resource differs: m 0: x"), (5, "5 resources differ: m 0: x; m 1: x; m 2: x; and 2 more")],
)
def test_the_reason_of_a_run_names_the_first(count: int, told: str) -> None:
    views: Sequence[DriftView] = [
        DriftView(resource="r", job=PRICES, module="m", target=str(n), expected="", actual="x") for n in range(count)
    ]
    assert describe_drift(views) == told
