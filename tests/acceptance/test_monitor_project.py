"""A project folder as a SpyWeb user has one, with the real command and the real daemon."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from spyweb.model import JobId
from tests.fakes.http_server import Answer, Arrived, serving
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
function words.is_unwanted(title)
  for word in fs_read("shared/unwanted.txt"):gmatch("%a+") do
    if title:lower():find(word, 1, true) then return true end
  end
  return false
end
return words
"""
SERVER = """
function title_of(row) return json_decode(row.json).title end

function get:titles()
  local titles = {}
  local rows = db_query("SELECT json FROM records WHERE job_id = ? ORDER BY rev_ts DESC", { self.path_args[1] })
  for _, row in ipairs(rows) do table.insert(titles, title_of(row)) end
  return { body = { titles = titles } }
end
function public.get:health() return "ok" end
"""
DASHBOARD = "<h1>Jobs</h1><script>fetch('/api/records?job_id=job_board')</script>"
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

    def take(self, arrived: Arrived) -> Answer:
        if arrived.method == "POST":
            self.posted.append(arrived.body.decode())
            return Answer(body=b"")
        status = 404 if arrived.path == "/nothing" else 200
        return Answer(status, {"Content-Type": "text/html; charset=utf-8"}, PAGE.encode())


@pytest.fixture
def board() -> Iterator[Board]:
    board = Board()
    with serving(board.take) as board.url:
        yield board


@pytest.fixture
def project(tmp_path: Path, board: Board) -> Project:
    project = Project(tmp_path)
    project.save("jobs/job-board/config.toml", CONFIG.replace("{site}", board.url))
    project.save("jobs/job-board/hooks.lua", HOOKS)
    project.save("jobs/job-board/defer.lua", DEFER)
    project.save("lib/words.lua", WORDS)
    project.save("shared/unwanted.txt", "intern trainee")
    project.save("server/init.lua", SERVER)
    project.save("ui/index.html", DASHBOARD)
    project.save("jobs.toml", PLAIN.replace("{site}", board.url))
    return project


def titles(project: Project, job: str) -> list[str]:
    """Of its records, oldest first."""
    found = project.daemon_client().records(JobId(job), limit=100)
    return [record.fields["title"] for record in reversed(found)]


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
        log = project.root / "jobs/job-board/hooks.log"
        eventually(lambda: log.exists() and log.read_text().count("finished") == 2, "both runs in the log")
    assert log.read_text().count("fetch success, store success") == log.read_text().count("finished") == 2


def test_its_server_answers_from_what_the_jobs_found_beside_its_pages(project: Project) -> None:
    with project.daemon() as daemon:
        project.ended("job_board")
        assert daemon.ask("/api/v/titles/job_board").body == b'{"titles":["Rust engineer","Python tester"]}'
        assert daemon.ask("/api/public/health").body == b"ok"
        assert daemon.ask("/").body == daemon.ask("/some/page").body == DASHBOARD.encode()
        newest = json.loads(daemon.ask("/api/records?job_id=job_board&limit=1").body)
        assert [record["title"] for record in newest["records"]] == ["Python tester"]
        assert {job["name"] for job in json.loads(daemon.ask("/api/jobs").body)} == {"Job board", "Plain"}


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
        assert ["title", "link", "pay", "keywords"] in lines
        assert ["Rust", "engineer", f"{board.url}/rust", "$120k"] in lines
        stages = {line[0]: line[1:3] for line in lines if len(line) >= 3}
        assert stages["filter_item"] == ["hook", "success"]
        assert stages["extract"] == ["internal", "success"]
        assert stages["before_store"] == ["hook", "inactive"]
        assert "2 items of 3 that were extracted" in done.stderr
    assert (project.root / "jobs/job-board/job_board-response.html").read_text() == PAGE
    fields = json.loads((project.root / "jobs/job-board/job_board-fields.json").read_text())
    assert [item["pay"] for item in fields] == ["120k", "20k", "90k"]


def test_a_page_that_is_gone_is_told_over_a_restart_too(project: Project, board: Board) -> None:
    project.save(
        "jobs.toml",
        f'[[jobs]]\nname = "Gone"\nurl = "{board.url}/nothing"\nselector = "p"\nfields = ["p"]\n'
        'every = "never"\nempty_after = 2\n',
    )
    with project.daemon() as daemon:
        project.result("gone")
        project.result("gone")
        daemon.stop()
    with project.daemon():
        (last,) = [job["last"] for job in project.ask("jobs") if job["id"] == "gone"]
        assert isinstance(last, dict)
        assert (last["http_status"], last["note"]) == (404, "not as expected: http status 404 in 2 runs in a row")
        assert "1 monitor finds less than expected" in project.spyweb("health").stdout
        shown = project.spyweb("run", "gone").stdout
        project.daemon_client().pause(JobId("gone"))
        assert "monitor" not in project.spyweb("health").stdout
    assert shown.endswith("404, 0 items; not as expected: http status 404 in 3 runs in a row\n")
    told = project.spyweb("debug", "gone", code=1).stdout
    assert f"error the page could not be fetched: http status: 404: {board.url}/nothing" in told
