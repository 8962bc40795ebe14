"""Record which functions of a real daemon a story passes through, by a profile hook in its main thread."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.fakes.project import Project
from tests.fakes.repository import ROOT

OUT = "STORIES_OUT"

# What Python runs at the start of every process that has this folder in its path; workers are started without it.
HOOK = f"""
import atexit, json, os, sys, time
if os.environ.get({OUT!r}) and "spyweb.daemon" in sys.orig_argv:
    calls = []
    def note(frame, event, _):
        if event == "call" and frame.f_code.co_filename.startswith({str(ROOT / "spyweb")!r}):
            calls.append((time.monotonic_ns(), frame.f_code.co_filename, frame.f_code.co_qualname))
    @atexit.register
    def write():
        sys.setprofile(None)
        with open(os.environ[{OUT!r}], "w") as file:
            json.dump(calls, file)
    sys.setprofile(note)
"""


@dataclass(slots=True)
class Recording:
    """Holds the calls of one daemon that has ended; moments by the monotonic clock that all processes share."""

    out: Path
    windows: dict[str, tuple[int, int]] = field(default_factory=dict)

    @contextmanager
    def story(self, name: str) -> Iterator[None]:
        began = time.monotonic_ns()
        yield
        self.windows[name] = (began, time.monotonic_ns())

    def calls(self) -> dict[str, list[str]]:
        """Return each story's calls as `room/file.py: function`, in order."""
        heard = json.loads(self.out.read_text())
        source = str(ROOT / "spyweb") + "/"
        return {
            name: [f"{file.removeprefix(source)}: {function}" for at, file, function in heard if began <= at <= ended]
            for name, (began, ended) in self.windows.items()
        }


def recorded(project: Project, folder: Path) -> tuple[Project, Recording]:
    """Return the project with a daemon that is recorded, and where its recording goes."""
    hook = folder / "hook"
    hook.mkdir()
    (hook / "sitecustomize.py").write_text(HOOK)
    out = folder / "calls.json"
    return replace(project, environment={**project.environment, "PYTHONPATH": str(hook), OUT: str(out)}), Recording(out)


def first_missing(expected: Sequence[str], calls: Sequence[str]) -> str | None:
    """Return the first step that does not come after the one before it, or not at all; None where all do."""
    at = 0
    for step in expected:
        if step not in calls[at:]:
            return step
        at = calls.index(step, at) + 1
    return None
