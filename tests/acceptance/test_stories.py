"""A real daemon lives through the stories of docs/architecture.md: each takes the steps that are listed, in order."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from tests.fakes.http_server import Answer, serving
from tests.fakes.project import Project, eventually
from tests.fakes.repository import read
from tests.fakes.stories import first_missing, recorded

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

PAGE = b"<ul><li><b>Lamp</b></li><li><b>Table</b></li></ul>"
MONITOR = 'name = "Shop"\nurl = "{url}"\nselector = "li"\nfields = ["title:b"]\nevery = "never"\n'
_STORY = re.compile(r"^### ([^\n]+)\n(.*?)(?=^##|\Z)", re.MULTILINE | re.DOTALL)
_STEP = re.compile(r"`([a-z_/]+\.py: [\w.]+)`")


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

    assert stories.keys() == calls.keys()
    wrong = {name: step for name, steps in stories.items() if (step := first_missing(steps, calls[name]))}
    assert not wrong, "not passed through, or not in this order"


def test_a_step_that_is_never_taken_or_out_of_order_is_found() -> None:
    calls = ["a.py: f", "b.py: g", "c.py: h"]
    assert first_missing(["a.py: f", "c.py: h"], calls) is None
    assert first_missing(["a.py: f", "d.py: i"], calls) == "d.py: i"
    assert first_missing(["c.py: h", "a.py: f"], calls) == "a.py: f"
