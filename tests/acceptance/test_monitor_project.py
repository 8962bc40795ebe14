"""A project folder as a SpyWeb user has one, with the real command and the real daemon."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import cast

import pytest

from tests.fakes.project import Project, eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

PAGE = """<html><body>
<div class="job"><h3 class="title">Rust engineer</h3><a href="/rust">go</a><i class="pay">120k</i></div>
<div class="job"><h3 class="title">Go intern</h3><a href="/intern">go</a><i class="pay">20k</i></div>
<div class="job"><h3 class="title">Python tester</h3><a href="/python">go</a><i class="pay">90k</i></div>
</body></html>"""

CONFIG = """
name = "Job board"
url = "{site}/board"
selector = ".job"
fields = ["title:.title", "link:a@href", { name = "pay", selector = ".pay", att = "text" }]
interval = 3600
hash_fields = ["link"]

[webhook]
enabled = true
url = "{site}/hook"

[notification]
enabled = false
"""
HOOKS = """
local words = require("lib.words")

function filter_item(item, ctx)
  if words.is_unwanted(item.fields.title) then return nil end
  item.fields.pay = "$" .. item.fields.pay
  return item
end

function before_webhook(payload, ctx)
  local names = {}
  for _, item in ipairs(payload.items) do table.insert(names, item.fields.title) end
  return { text = payload.job_name .. ": " .. table.concat(names, ", ") }
end
"""
DEFER = """
function on_finally(ctx)
  log("fetch " .. ctx.telemetry.map.fetch.status .. ", store " .. ctx.telemetry.map.store.status)
end
function on_finished() log("finished") end
"""
WORDS = """
local words = {}
function words.is_unwanted(title) return title:lower():find("intern") ~= nil end
return words
"""
PLAIN = """
[[jobs]]
name = "Plain"
url = "{site}/board"
selector = ".job"
fields = ["title:.title"]
keywords = ["python"]
interval = 3600
notification = { enabled = false }
"""


@dataclass(slots=True)
class Board:
    url: str = ""
    posted: list[str] = field(default_factory=list)


class Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    board: Board


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self._answer(PAGE.encode())

    def do_POST(self) -> None:
        board = cast(Server, self.server).board
        board.posted.append(self.rfile.read(int(self.headers["Content-Length"])).decode())
        self._answer(b"")

    def _answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's own name
        pass


@pytest.fixture
def board() -> Iterator[Board]:
    server = Server(("127.0.0.1", 0), Handler)
    server.board = board = Board(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield board
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def project(tmp_path: Path, board: Board) -> Project:
    project = Project(tmp_path)
    project.save("jobs/job-board/config.toml", CONFIG.replace("{site}", board.url))
    project.save("jobs/job-board/hooks.lua", HOOKS)
    project.save("jobs/job-board/defer.lua", DEFER)
    project.save("lib/words.lua", WORDS)
    project.save("jobs.toml", PLAIN.replace("{site}", board.url))
    return project


def titles(project: Project, job: str) -> list[str]:
    """Of its records, oldest first."""
    found = json.loads(project.spyweb("records", job, "-o", "json").stdout)
    return [record["title"] for record in reversed(found)]


def test_it_is_checked_run_by_the_daemon_and_told_to_a_webhook(project: Project, board: Board) -> None:
    assert project.spyweb("check").returncode == 0
    with project.daemon():
        assert project.ended("job_board")[0].outcome == "success"
        assert project.ended("plain")[0].outcome == "success"
        assert titles(project, "job_board") == ["Rust engineer", "Python tester"]
        assert titles(project, "plain") == ["Python tester"]
        assert json.loads(eventually(lambda: board.posted, "the webhook")[0]) == {
            "text": "Job board: Rust engineer, Python tester"
        }
        project.spyweb("run", "Job board")
        assert len(titles(project, "job_board")) == 2
    log = (project.root / "jobs/job-board/hooks.log").read_text()
    assert log.count("fetch success, store success") == log.count("finished") == 2


def test_debug_shows_stages_and_items_and_leaves_files_with_a_daemon_and_without(
    project: Project, board: Board
) -> None:
    hooks = project.root / "jobs/job-board/config.toml"
    hooks.write_text("enabled = false\n" + hooks.read_text())
    alone = project.spyweb("debug", "Job board")
    with project.daemon():
        served = project.spyweb("debug", "Job board")
        assert titles(project, "job_board") == []
    for done in (alone, served):
        lines = [line.split() for line in done.stdout.splitlines()]
        assert ["title", "link", "pay", "matches"] in lines
        assert ["Rust", "engineer", f"{board.url}/rust", "$120k"] in lines
        stages = {line[0]: line[1:3] for line in lines if len(line) >= 3}
        assert stages["filter_item"] == ["hook", "success"]
        assert stages["extract"] == ["internal", "success"]
        assert stages["before_store"] == ["hook", "inactive"]
        assert "2 items of 3 that were extracted" in done.stderr
    assert (project.root / "jobs/job-board/job_board-response.html").read_text() == PAGE
    fields = json.loads((project.root / "jobs/job-board/job_board-fields.json").read_text())
    assert [item["pay"] for item in fields] == ["120k", "20k", "90k"]


def test_a_broken_save_of_hooks_leaves_the_old_ones_running(project: Project) -> None:
    with project.daemon():
        project.ended("job_board")
        project.save("jobs/job-board/hooks.lua", "error('not yet')")
        eventually(lambda: "not yet" in project.shown("job_board").error)
        project.spyweb("run", "Job board")
        assert titles(project, "job_board") == ["Rust engineer", "Python tester"]
        project.save("jobs/job-board/hooks.lua", "function filter_item(item) return item end")
        eventually(lambda: not project.shown("job_board").error)
        project.spyweb("run", "Job board")
        assert len(titles(project, "job_board")) == 3
