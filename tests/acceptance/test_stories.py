"""A real daemon lives through the stories of docs/architecture.md: each takes the steps that are listed, in order."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from tests.fakes.cluster import Cluster
from tests.fakes.http_server import Answer, serving
from tests.fakes.postgres import PostgresPlace
from tests.fakes.project import Project, eventually
from tests.fakes.repository import ROOT, read

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

PAGE = b"<ul><li><b>Lamp</b></li><li><b>Table</b></li></ul>"
MONITOR = 'name = "Shop"\nurl = "{url}"\nselector = "li"\nfields = ["title:b"]\nevery = "never"\n'
_STORY = re.compile(r"^### ([^\n]+)\n(.*?)(?=^##|\Z)", re.MULTILINE | re.DOTALL)
_STEP = re.compile(r"`([a-z_/]+\.py: [\w.]+)`")


OF_A_CLUSTER = "A node dies"
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


def listed() -> dict[str, list[str]]:
    """Return the steps of each story on the page."""
    _, _, stories = read("docs/architecture.md").partition("\n## The stories\n")
    return {name: steps for name, text in _STORY.findall(stories) if (steps := _STEP.findall(text))}


def soon() -> str:
    return time.strftime("at = %Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 2))


def test_each_story_passes_through_the_functions_that_the_page_lists(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    project, recording = recorded(Project(tmp_path / "project"), tmp_path)
    project.job("plain", "function run() return 1 end")
    project.save("server/init.lua", 'function public.get:hello() return "hello" end\n')
    with serving(lambda _: Answer(body=PAGE)) as url:
        project.save("jobs/shop/config.toml", MONITOR.format(url=url))
        project.save("jobs/shop/hooks.lua", "function before_store(items) return items end\n")
        with project.daemon("--workers", "1") as daemon:
            daemon.ask("/api/public/hello")  # its VMs are ready from here on
            with recording.story("A due run"):
                project.job("plain", "function run() return 1 end", settings=soon())
                project.ended("plain")
            with recording.story("A value that a script stores"):
                project.job("stores", 'function run() store_set("k", "v") end', settings=soon())
                project.ended("stores")
            with recording.story("A save"):
                project.job("plain", "function run() return cdp.open() end")
                # The doubt about it is what a look at the files shows last: the generation is there before it.
                eventually(lambda: project.shown("plain").warnings, "the doubt about a second generation")
            with recording.story("A monitor's cycle"):
                project.spyweb("trigger", "shop")
                project.ended("shop")
            with recording.story("A request to an endpoint"):
                daemon.ask("/api/public/hello")
            assert daemon.stop() == 0
    calls, stories = recording.calls(), listed()

    assert stories.keys() == {*calls, OF_A_CLUSTER}
    wrong = {name: step for name in calls if (step := first_missing(stories[name], calls[name]))}
    assert not wrong, "not passed through, or not in this order"


def test_the_death_of_a_node_passes_through_the_functions_that_the_page_lists(
    tmp_path: Path, postgres: PostgresPlace
) -> None:
    cluster = Cluster(postgres, tmp_path, lease_ms=1000)
    cluster.add("fra", "ber")
    cluster.job("pulse", "return 1", 'every = "1s"')  # in a slot that is not given to who joins
    (survivor, recording), other = recorded(cluster.projects["fra"], tmp_path), cluster.projects["ber"]
    with other.daemon() as dying:
        other.ended("pulse")
        with survivor.daemon("--workers", "1") as daemon, recording.story(OF_A_CLUSTER):
            dying.kill()
            eventually(lambda: daemon.has_said("slots taken") and daemon.has_said("a node is dead"), "its death")
            last = survivor.runs("pulse")[0].id
            eventually(lambda: survivor.runs("pulse")[0].id > last, "a run on the other node")
            assert daemon.stop() == 0
    assert first_missing(listed()[OF_A_CLUSTER], recording.calls()[OF_A_CLUSTER]) is None


def test_a_step_that_is_never_taken_or_out_of_order_is_found() -> None:
    calls = ["a.py: f", "b.py: g", "c.py: h"]
    assert first_missing(["a.py: f", "c.py: h"], calls) is None
    assert first_missing(["a.py: f", "d.py: i"], calls) == "d.py: i"
    assert first_missing(["c.py: h", "a.py: f"], calls) == "a.py: f"
