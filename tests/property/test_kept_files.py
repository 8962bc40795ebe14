"""Any sequence of `file.*` is idempotent, touches nothing outside, and leaves nothing half-written wherever it ends."""

from __future__ import annotations

import asyncio
import inspect
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spyweb import files as opening
from spyweb.errors import OpError
from spyweb.ops.files import files as module
from spyweb.ops.files.files import Files
from spyweb.ops.files.names import FilePlace
from spyweb.ops.world import Call
from tests.fakes.clock import FakeClock
from tests.fakes.ops import ask, make_call, make_world, table

NAMES = st.sampled_from(
    b"a b folder folder/a folder/b/c inside inside/a out out/a up up/x shared/a shared/out/a ../a /etc/passwd a.lua "
    b"config.toml none/a link".split()
)
TEXTS = st.sampled_from([b"", b"one", b"two\nthree\n", b"x" * 5_000])
MODES = st.sampled_from([{}, {"mode": b"0600"}, {"mode": 755}])
CHECKS = st.sampled_from([{}, {"check": True}])
STEPS = st.one_of(
    st.builds(lambda src, dest: ("file.copy", {"src": src, "dest": dest}), NAMES, NAMES),
    st.builds(lambda path, line: ("file.line", {"path": path, "line": line}), NAMES, st.sampled_from([b"one", b""])),
    st.builds(
        lambda path, line: ("file.line", {"path": path, "line": line, "state": b"absent"}),
        NAMES,
        st.sampled_from([b"one"]),
    ),
    st.builds(lambda path: ("file.mkdir", {"path": path}), NAMES),
    st.builds(lambda path: ("file.remove", {"path": path}), NAMES),
    st.builds(lambda dest, text: ("_template_file", {"dest": dest}, text), NAMES, TEXTS),
)
WITH_MODE = ("file.copy", "file.mkdir", "_template_file")


def everything(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path): (path.lstat().st_mode, path.read_bytes() if path.is_file() and not path.is_symlink() else b"")
        for path in sorted(folder.rglob("*"))
    }


def build(root: Path) -> tuple[Call, Path, Path]:
    """Make a project with a job, whose folder has links that lead in and out, and what lies outside."""
    folder, outside = root / "project/jobs/prices", root / "outside"
    for each in (folder / "folder", outside / "inner", root / "project/shared", root / "project/jobs/other"):
        each.mkdir(parents=True)
    (outside / "a").write_bytes(b"secret")
    (root / "project/jobs/other/a").write_bytes(b"secret")
    (folder / "a").write_bytes(b"one")
    (folder / "inside").symlink_to("folder")
    (folder / "link").symlink_to("a")
    (folder / "out").symlink_to("../../../outside")
    (folder / "up").symlink_to("../other")
    (root / "project/shared/out").symlink_to(outside)
    return make_call(make_world(root=root / "project")), folder, outside


def outside_of(root: Path) -> dict[str, tuple[int, bytes]]:
    inside = (str(root / "project/jobs/prices"), str(root / "project/shared"))
    return {path: found for path, found in everything(root).items() if not path.startswith(inside)}


def inside_of(root: Path) -> dict[str, tuple[int, bytes]]:
    return {**everything(root / "project/jobs/prices"), **everything(root / "project/shared")}


async def perform(
    call: Call, name: str, fields: Mapping[str, object], rest: Sequence[object]
) -> dict[str, object] | None:
    """Return the outcome, or None for what was refused or failed."""
    try:
        outcome, _ = await ask(call, name, table(**fields), *rest)
    except OpError:
        return None
    assert outcome is None or isinstance(outcome, dict)
    return outcome


@given(st.lists(st.tuples(STEPS, MODES, CHECKS), max_size=12))
def test_any_sequence_is_idempotent_and_stays_inside(
    steps: list[tuple[tuple[str, dict[str, object]], dict[str, object], dict[str, object]]],
) -> None:
    async def play(root: Path) -> None:
        call, _, _ = build(root)
        outside = outside_of(root)
        for step, mode, check in steps:
            name, fields, rest = step[0], step[1], list[object](step[2:])
            before = inside_of(root)
            all_fields = fields | (mode if name in WITH_MODE else {}) | check
            outcome = await perform(call, name, all_fields, rest)
            after = inside_of(root)
            assert (after != before) <= bool(outcome and outcome["changed"]), "what was done is told"
            if outcome is None or check:
                assert after == before, "nothing is done by what fails, or only looks"
            if outcome and not check:
                again = await perform(call, name, all_fields, rest)
                copies_itself = name == "file.copy" and fields["src"] == fields["dest"]
                assert again is not None or copies_itself
                assert again is None or again["changed"] is False
                assert inside_of(root) == after
            assert outside_of(root) == outside
            assert not [path for path in after if "spyweb-new" in path]

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(play(Path(folder)))


# What changes something on the disk.
STEPPED = ("open", "write", "fchmod", "fsync", "rename", "unlink", "mkdir", "rmdir")


def killed_at(step: int, work: Callable[[], object]) -> bool:
    """Do the work in a process that is killed right before the step of this number; return whether it got that far."""
    child = os.fork()
    if child == 0:
        left = step

        def counted(real: Callable[..., object]) -> Callable[..., object]:
            def call(*given: object, **named: object) -> object:
                nonlocal left
                left -= 1
                if left < 0:
                    os._exit(9)
                return real(*given, **named)

            return call

        for name in STEPPED:
            setattr(os, name, counted(getattr(os, name)))
        try:
            work()
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status) == 9


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("old", [None, b"old" * 1_000])
def test_a_crash_at_any_step_leaves_the_old_file_or_the_new_one(tmp_path: Path, old: bytes | None) -> None:
    new = b"new" * 1_000_000
    folder = tmp_path / "jobs/x"
    folder.mkdir(parents=True)
    source = FilePlace(str(tmp_path), "jobs/x", ("source",))
    place = FilePlace(str(tmp_path), "jobs/x", ("file",))
    (folder / "source").write_bytes(new)
    files = Files(tmp_path, FakeClock())
    works: dict[str, Callable[[], object]] = {
        "copy": lambda: files.copy(source, place, 0o600, check=False),
        "put": lambda: files.put(place, new, 0o600, check=False),
    }
    for work in works.values():
        step = 0
        while True:
            (folder / "file").unlink(missing_ok=True)
            if old is not None:
                (folder / "file").write_bytes(old)
            if not killed_at(step, work):
                break
            found = (folder / "file").read_bytes() if (folder / "file").exists() else None
            assert found in (old, new), step
            work()  # what comes next is not disturbed by what was left
            assert (folder / "file").read_bytes() == new
            assert sorted(os.listdir(folder)) == ["file", "source"], step
            step += 1
        assert step > 5, "it was cut off at each of its steps"


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_crash_while_folders_are_made_or_removed_is_made_good(tmp_path: Path) -> None:
    place = FilePlace(str(tmp_path), "jobs/x", ("a", "b", "c"))
    files = Files(tmp_path, FakeClock())
    step = 0
    while killed_at(step, lambda: files.mkdir(place, 0o700, check=False)):
        files.mkdir(place, 0o700, check=False)
        assert (tmp_path / "jobs/x/a/b/c").stat().st_mode & 0o777 == 0o700
        while killed_at(0, lambda: files.remove(place, check=False)):
            files.remove(place, check=False)
            break
        assert not (tmp_path / "jobs/x/a/b/c").exists()
        for made in ("a/b", "a", ""):
            (tmp_path / "jobs/x" / made).rmdir()
        (tmp_path / "jobs").rmdir()
        step += 1
    assert step > 5


def test_the_steps_are_those_that_the_module_takes() -> None:
    """One that writes by another call would not be cut off there."""
    source = inspect.getsource(module) + inspect.getsource(opening)
    used = {name for name in dir(os) if f"os.{name}(" in source}
    harmless = "close dup fsdecode fsencode fstat ftruncate listdir lseek read stat strerror"
    assert used - set(STEPPED) <= set(harmless.split())
