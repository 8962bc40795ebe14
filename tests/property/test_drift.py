"""Whatever jobs and others do to files, drift tells exactly those that are not as they were last left."""

from __future__ import annotations

import asyncio
import os
import stat
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from spyweb.errors import OpError
from spyweb.model import JobId, RunId
from spyweb.ops.world import Call
from tests.fakes.drifting import make_drift
from tests.fakes.harness import make_spec
from tests.fakes.ops import PRICES, ask, make_call, make_world, table

NAMES = ("a", "b", "sub", "sub/a", "sub/b", "shared/a", "shared/sub", "shared/sub/a")
NAME = st.sampled_from(NAMES)
TEXT = st.sampled_from(["", "one\n", "two\nx\n"])
MODE = st.sampled_from([None, 0o600, 0o755])
JOB = st.sampled_from([PRICES, JobId("other")])

CALLS = st.one_of(
    st.tuples(st.just("file.copy"), JOB, NAME, MODE, NAME),
    st.tuples(st.just("_template_file"), JOB, NAME, MODE, TEXT),
    st.tuples(st.just("file.mkdir"), JOB, NAME, MODE, st.none()),
    st.tuples(st.just("file.remove"), JOB, NAME, st.none(), st.none()),
    st.tuples(st.just("file.line"), JOB, NAME, st.none(), st.sampled_from(["present", "absent"])),
)
OUTSIDE = st.one_of(
    st.tuples(st.just("write"), JOB, NAME, TEXT),
    st.tuples(st.just("delete"), JOB, NAME, st.none()),
    st.tuples(st.just("chmod"), JOB, NAME, st.sampled_from([0o600, 0o644, 0o755])),
    st.tuples(st.just("rename"), JOB, NAME, NAME),
    st.tuples(st.just("mkdir"), JOB, NAME, st.none()),
    st.tuples(st.just("link in"), JOB, NAME, st.none()),
    st.tuples(st.just("link out"), JOB, NAME, st.none()),
)

Wanted = Callable[[Path], bool]  # tells whether what is at a path is as it was left


class Model:
    """What each target was last left as: plain functions that look at the disk."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.left: dict[tuple[JobId, str], Wanted] = {}

    def path(self, job: JobId, name: str) -> Path:
        return self.root / name if name.startswith("shared/") else self.root / "jobs" / job / name

    def base(self, job: JobId, name: str) -> Path:
        return self.root / "shared" if name.startswith("shared/") else self.root / "jobs" / job

    def differing(self) -> set[str]:
        return {f"{job}:{name}" for (job, name), is_left in self.left.items() if not self._is(job, name, is_left)}

    def _is(self, job: JobId, name: str, is_left: Wanted) -> bool:
        path = self.path(job, name)
        if not Path(os.path.realpath(path.parent)).is_relative_to(self.base(job, name)):
            return False  # a link was put there that leads out: nothing is looked at
        return is_left(path)

    def leave(self, call: tuple[object, ...]) -> None:
        """Note what a call that succeeded has left, or found."""
        name, job, target, mode, more = call
        assert isinstance(job, str)
        assert isinstance(target, str)
        path = self.path(JobId(job), target)
        if name in ("file.copy", "_template_file"):
            content = path.read_bytes()
            is_left: Wanted = lambda path: is_file(path) and path.read_bytes() == content and has_mode(path, mode)  # noqa: E731
        elif name == "file.mkdir":
            base = self.base(JobId(job), target)
            is_left = lambda path: (  # noqa: E731
                path.is_dir() and Path(os.path.realpath(path)).is_relative_to(base) and has_mode(path, mode)
            )
        elif name == "file.remove":
            is_left = lambda path: not os.path.lexists(path)  # noqa: E731
        elif more == "present":
            is_left = lambda path: path.is_file() and "x" in path.read_text().splitlines()  # noqa: E731
        else:
            is_left = lambda path: not path.exists() or (path.is_file() and "x" not in path.read_text().splitlines())  # noqa: E731
        self.left[JobId(job), target] = is_left


def is_file(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def has_mode(path: Path, mode: object) -> bool:
    return mode is None or stat.S_IMODE(path.stat().st_mode) == mode


async def perform(call: Call, given_call: tuple[object, ...]) -> bool:
    """Make a call; return whether it succeeded."""
    name, _, target, mode, more = given_call
    fields: dict[str, object] = {"path" if name in ("file.mkdir", "file.remove", "file.line") else "dest": target}
    if mode is not None:
        fields["mode"] = f"{mode:04o}"
    if name == "file.copy":
        fields["src"] = more
    if name == "file.line":
        fields |= {"line": "x", "state": more}
    encoded = {key: value.encode() if isinstance(value, str) else value for key, value in fields.items()}
    rest = [more.encode()] if name == "_template_file" and isinstance(more, str) else []
    try:
        outcome, _ = await ask(call, str(name), table(**encoded), *rest)
    except OpError:
        return False
    return outcome is not None


def delete(path: Path, _: object) -> None:
    if path.is_dir() and not path.is_symlink():
        path.rmdir()
    else:
        path.unlink()


def chmod(path: Path, mode: object) -> None:
    if not path.is_symlink():
        path.chmod(int(str(mode)))


DEEDS: dict[str, Callable[[Path, object], object]] = {
    "write": lambda path, text: path.write_text(str(text)),
    "delete": delete,
    "chmod": chmod,
    "mkdir": lambda path, _: path.mkdir(),
    "link in": lambda path, _: path.symlink_to("a" if path.name != "a" else "b"),
    "link out": lambda path, outside: path.symlink_to(str(outside)),
}


def disturb(model: Model, what: str, job: JobId, name: str, more: object) -> None:
    """Do what somebody else may do to the files; what can't be done is not."""
    path = model.path(job, name)
    with suppress(OSError):
        if what == "rename":
            path.rename(model.path(job, str(more)))
        else:
            DEEDS[what](path, model.root / "outside" if what == "link out" else more)


@given(st.lists(st.one_of(CALLS, OUTSIDE), max_size=25))
def test_drift_tells_exactly_what_is_not_as_it_was_left(steps: list[tuple[object, ...]]) -> None:
    async def play(root: Path) -> None:
        for folder in ("jobs/prices", "jobs/other", "shared", "outside"):
            (root / folder).mkdir(parents=True)
        (root / "outside/a").write_text("one\n")
        world, model = make_world(root=root), Model(root)
        specs = {job: make_spec(job) for job in (PRICES, JobId("other"))}
        drift = make_drift(world.store, world.clock, specs, world.files)
        for number, step in enumerate(steps, 1):
            job = JobId(str(step[1]))
            if len(step) == 5:
                if await perform(make_call(world, job=job, run=RunId(number), is_recorded=True), step):
                    model.leave(step)
            else:
                disturb(model, str(step[0]), job, str(step[2]), step[3])
            report = await drift.check(None)
            assert {f"{each.job}:{each.target}" for each in report.differences} == model.differing(), step
            assert report.checked == len(model.left)

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(play(Path(os.path.realpath(folder))))
