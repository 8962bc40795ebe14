"""A project with a server of its own: real HTTP to a real daemon, whose workers run the Lua."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.fakes.http_client import Reply, ask
from tests.fakes.project import Daemon, Project, eventually
from tests.fakes.repository import read

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

INIT = r"""
local words = require("words")
count = (count or 0) + 1                         -- one in each VM

function get:hello() return "Hello, " .. (self.query.name or words.nobody) end
function get:count() return { body = count } end
function get:self() return { body = self } end
function all:echo() return { status = 201, body = self.body, headers = {
  ["Content-Type"] = self.headers["content-type"], ["X-Args"] = table.concat(self.path_args, "|"),
  ["X-Split"] = "a\r\nb", ["Connection"] = "upgrade", [""] = "x" } } end
function get:broken() error("no luck") end
function get:large() return ("\0\xff"):rep(2 * 1024 * 1024) end
function get:later()
  defer(function() sleep(20) log("deferred " .. self.path) global_store_set("later", "done") end)
  return { status = 202, body = { ok = true } }
end
function get:later_done() return global_store_get("later") end
function get:lock() local mine = state.try_lock("door", 600) error(tostring(mine)) end
function public.get:status() return { body = { up = true } } end
"""


@dataclass(slots=True)
class Site:
    project: Project
    daemon: Daemon

    @property
    def origin(self) -> str:
        return self.daemon.url

    @property
    def where(self) -> str:
        return urlsplit(self.origin).netloc

    def ask(self, path: str, method: str = "GET", body: bytes | None = None, **headers: str) -> Reply:
        return ask(self.origin, path, method, body, headers)

    def log(self, name: str) -> str:
        path = self.project.root / "server" / name
        return path.read_text() if path.exists() else ""


class DashboardSite(Site):
    """The origin that the dashboard has to itself."""

    @property
    def origin(self) -> str:
        return str(json.loads(self.project.spyweb("health", "-o", "json").stdout)["dashboard_url"])


def a_project(root: Path) -> Project:
    project = Project(root)
    (root / "jobs").mkdir()
    project.save("server/init.lua", INIT)
    project.save("server/words.lua", 'return { nobody = "nobody" }')
    project.save("ui/index.html", "<h1>pages</h1>")
    return project


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    project = a_project(tmp_path_factory.mktemp("site"))
    with project.daemon() as daemon:
        yield Site(project, daemon)


@pytest.fixture
def own_site(tmp_path: Path) -> Iterator[Site]:
    project = a_project(tmp_path)
    with project.daemon() as daemon:
        yield Site(project, daemon)


def test_what_the_page_shows_works(tmp_path: Path) -> None:
    blocks = re.findall(r"```lua\n(.*?)```", read("docs/how-to/endpoints.md"), re.DOTALL)
    project = a_project(tmp_path)
    project.save("server/init.lua", "\n".join(blocks).replace("https://hooks.example.com", "http://127.0.0.1:9"))
    with project.daemon() as daemon:
        site = Site(project, daemon)
        assert site.ask("/api/v/hello?name=Zoe").body == b"Hello, Zoe"
        assert site.ask("/api/v/items", "POST", b'{"name": "tea"}').json == {"item": {"name": "tea"}}
        assert site.ask("/api/v/items", "POST", b"{").status == 400
        assert site.ask("/api/public/status").json == {"up": True}
        assert site.ask("/api/v/prices").json == []
        assert site.ask("/api/v/webhook", "POST", b'{"n": 1}').status == 202
        eventually(lambda: "not relayed: " in site.log("server.log"))


def test_a_handler_answers_and_every_request_has_a_vm_of_its_own(site: Site) -> None:
    assert site.ask("/api/v/hello").body == b"Hello, nobody"
    assert site.ask("/api/v/hello?name=Zo%C3%AB").body == "Hello, Zoë".encode()
    assert {site.ask("/api/v/count").body for _ in range(20)} == {b"1"}


def test_binary_bodies_pass_both_ways_and_bad_headers_are_dropped(site: Site) -> None:
    body = bytes(range(256)) * 400
    reply = site.ask("/api/v/echo/1/2", "PUT", body, Content_Type="image/png")
    assert (reply.status, reply.body, reply.headers["Content-Type"]) == (201, body, "image/png")
    assert reply.headers["X-Args"] == "1|2"
    assert "X-Split" not in reply.headers
    assert reply.headers.get("Connection") != "upgrade"
    assert site.ask("/api/v/large").body == b"\0\xff" * (2 << 20)


def test_an_error_is_told_inside_alone(site: Site) -> None:
    reply = site.ask("/api/v/broken")
    assert (reply.status, reply.json) == (500, {"error": "Internal Server Error"})
    eventually(lambda: "GET /api/v/broken: " in site.log("error.log"))
    assert "server/init.lua:11: no luck" in site.log("error.log")
    eventually(lambda: "an endpoint failed" in site.daemon.said())


def test_what_is_deferred_runs_after_the_answer_and_may_call_ops(site: Site) -> None:
    assert site.ask("/api/v/later").json == {"ok": True}
    eventually(lambda: site.ask("/api/v/later_done").body == b"done")
    eventually(lambda: "INFO deferred /api/v/later" in site.log("server.log"))


def test_the_locks_of_a_request_end_with_it(site: Site) -> None:
    for _ in range(2):
        assert site.ask("/api/v/lock").status == 500

    eventually(lambda: len(re.findall(r"GET /api/v/lock: server/init\.lua:\d+: true", site.log("error.log"))) == 2)


def test_pages_and_everything_else_are_served_beside(site: Site) -> None:
    assert site.ask("/").body == b"<h1>pages</h1>"
    assert site.ask("/somewhere").body == b"<h1>pages</h1>"
    assert site.ask("/api/public/status").json == {"up": True}
    assert site.ask("/api/jobs").json == []
    assert site.ask("/healthz").status == 200
    assert site.ask("/api/v/hello", Host="evil.example").status == 403


def test_many_requests_at_once_are_all_answered(site: Site) -> None:
    with ThreadPoolExecutor(40) as crowd:
        replies = list(crowd.map(lambda number: site.ask(f"/api/v/hello?name={number}"), range(400)))
    assert [reply.body for reply in replies] == [b"Hello, %d" % number for number in range(400)]


def test_a_save_is_live_at_once_and_a_broken_one_never(own_site: Site) -> None:
    site, project = own_site, own_site.project
    project.save("server/words.lua", 'return { nobody = "module" }')
    eventually(lambda: site.ask("/api/v/hello").body == b"Hello, module")
    project.save("server/words.lua", "return {{")
    eventually(lambda: "server/words.lua:" in site.daemon.said())
    assert site.ask("/api/v/hello").body == b"Hello, module"
    project.save("server/words.lua", 'return { nobody = "mended" }')
    eventually(lambda: site.ask("/api/v/hello").body == b"Hello, mended")
    project.save("server/init.lua", "function get:hello() return 'x' end end")
    eventually(lambda: "server/init.lua:1" in site.daemon.said())
    assert site.ask("/api/v/hello").body == b"Hello, mended"
    assert "the server's file does not load" in str(site.ask("/healthz").json)
    assert "server/init.lua" in project.spyweb("check", code=1).stdout
    (project.root / "server/init.lua").unlink()
    eventually(lambda: site.ask("/api/v/hello").status == 404)
    project.save("server/init.lua", "function get:hello() return 'back' end")
    eventually(lambda: site.ask("/api/v/hello").body == b"back")


def test_a_worker_that_dies_costs_the_requests_in_it_and_no_more(own_site: Site) -> None:
    own_site.project.save("server/init.lua", INIT + "function get:hang() sleep(60000) end")
    eventually(lambda: 'generation": 2' in own_site.daemon.said())
    with ThreadPoolExecutor(1) as crowd:
        hanging = crowd.submit(own_site.ask, "/api/v/hang")
        workers = eventually(lambda: [each for each in health(own_site) if each["runs"]])
        for worker in workers:
            os.kill(int(str(worker["pid"])), signal.SIGKILL)
        assert hanging.result(30).status == 500
    for _ in range(4):
        assert own_site.ask("/api/v/hello").status == 200


def test_content_that_comes_later_is_served_at_once_and_the_dashboard_gets_a_port_to_itself(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.job("prices", "return 1")
    with project.daemon() as daemon:
        site = Site(project, daemon)
        assert site.ask("/api/overview").status == 200
        project.save("server/init.lua", 'function public.get:hello() return "hello" end')
        eventually(lambda: body_of(site, "/api/public/hello") == b"hello")
        assert site.ask("/api/overview").status == 403
        found = json.loads(project.spyweb("health", "-o", "json").stdout)
        assert urlsplit(found["server_url"]).netloc == site.where
        dashboard = DashboardSite(project, daemon)
        assert dashboard.where != site.where
        assert dashboard.ask("/").status == 200
        pause = "/api/jobs/prices/pause"
        assert dashboard.ask(pause, "POST", Origin=f"http://{site.where}").status == 403
        assert dashboard.ask(pause, "POST", Sec_Fetch_Site="same-site").status == 403
        assert dashboard.ask("/api/public/hello").status == 404


def body_of(site: Site, path: str) -> bytes | None:
    """Ask a server that hangs up on those connected before the dashboard got a port to itself."""
    try:
        return site.ask(path).body
    except ConnectionError:
        return None


def health(site: Site) -> list[dict[str, object]]:
    found = json.loads(site.project.spyweb("health", "-o", "json").stdout)["workers"]
    return [worker for worker in found if worker["job"]]


WAITING = """
function get:slow()
    fs_overwrite("begun.txt", "")
    while not fs_read("stopping.txt") do sleep(20) end
    return "waited"
end
"""


def test_a_stop_waits_for_handlers_within_the_grace(own_site: Site) -> None:
    project, daemon = own_site.project, own_site.daemon
    project.save("server/init.lua", WAITING)
    eventually(lambda: 'generation": 2' in daemon.said())
    with ThreadPoolExecutor(2) as crowd:
        slow = crowd.submit(own_site.ask, "/api/v/slow")
        eventually((project.root / "server/begun.txt").exists)
        stop = crowd.submit(daemon.stop)
        eventually(lambda: daemon.has_said('"stopping"'))
        project.save("server/stopping.txt", "")
        assert slow.result(10).body == b"waited"
        assert stop.result(10) == 0
