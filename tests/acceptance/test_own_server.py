"""No part of a real daemon that sends requests asks the daemon itself, whoever has named it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.fakes.http_server import Answer, Arrived, serving
from tests.fakes.project import Daemon, Project, eventually
from tests.fakes.web_server import unused_port

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

CONFIG = """\
[server]
dashboard_port = {dashboard}
[heartbeat]
url = "{own}?by=heartbeat"
[channels.hook]
webhook = "{own}?by=channel"
[alerts]
to = ["hook"]
after_failures = 1
[permissions]
net = ["*"]
[jobs.named.permissions]
net = ["*", "127.0.0.1:{port}", "127.0.0.1:{dashboard}"]
"""
SERVER = """
local function count(self) global_store_set("hits." .. (self.query.by or "none"), "yes") return "ok" end
public.get.hit, public.post.hit = count, count
"""
SCRIPT = """
local function said(_, error) return type(error) == "table" and error.error or tostring(error) end
local function try(...) local ok, a, b = pcall(...) return ok and said(a, b) or said(nil, a) end
local own, foreign = engine.server_url .. "/api/public/hit?by=script", "{foreign}"
return {{
  get = try(http_get, own),
  post = try(http_post, own, "x"),
  redirect = try(http_get, foreign .. "/"),
  proxy = try(http_request, {{ url = own, proxy = foreign }}),
  as_proxy = try(http_request, {{ url = "http://example.com/api/public/hit?by=proxy", proxy = engine.server_url }}),
  dashboard = try(http_post, "http://127.0.0.1:{dashboard}/api/jobs/script/pause", ""),
  tls = try(tls_probe, "127.0.0.1", {port}),
}}
"""
HITS = """
local found = {}
for _, by in ipairs { "script", "redirect", "proxy", "monitor", "webhook", "ping", "heartbeat", "channel", "named" } do
  found[by] = global_store_get("hits." .. by)
end
return found
"""
MONITOR = """
name = "{name}"
url = "{url}"
selector = "p"
fields = ["text:a"]
interval = 3600

[webhook]
enabled = true
url = "{own}?by=webhook"

[notification]
enabled = false
"""
NAMED = """
local function ask(at, path) return http_request {{ method = "POST", url = at .. path, body = "{{}}" }}.status end
local content, dashboard = engine.server_url, "http://127.0.0.1:{dashboard}"
return {{
  ask(content, "/api/public/hit?by=named"),
  ask(content, "/api/keys"),
  ask(content, "/api/hooks/script"),
  ask(dashboard, "/api/jobs/script/pause"),
  ask(dashboard, "/keys"),
}}
"""


def refused(daemon: Daemon, what: str) -> bool:
    return any(what in line and "which is this daemon" in line for line in daemon.said().splitlines())


@pytest.fixture
def own() -> str:
    return f"http://127.0.0.1:{unused_port()}/api/public/hit"


@pytest.fixture
def elsewhere(own: str) -> Iterator[str]:
    """A server elsewhere, and a proxy, that leads everybody to the daemon; but /page is a page."""

    def answer(arrived: Arrived) -> Answer:
        if arrived.path == "/page":
            return Answer(body=b"<p><a>one</a></p>")
        return Answer(307, {"Location": f"{own}?by=redirect"}, b"")

    with serving(answer) as origin:
        yield origin


def test_neither_jobs_nor_the_daemon_reach_its_own_server(tmp_path: Path, own: str, elsewhere: str) -> None:
    port, dashboard = urlsplit(own).port, unused_port()
    project = Project(tmp_path)
    project.save("config.toml", CONFIG.format(own=own, port=port, dashboard=dashboard))
    project.save("server/init.lua", SERVER)
    project.job("script", SCRIPT.format(foreign=elsewhere, port=port, dashboard=dashboard))
    project.job("named", NAMED.format(dashboard=dashboard))
    project.job("hits", HITS)
    project.job("pinging", "return 1", f'every = "never"\nping_url = "{own}?by=ping"')
    project.save("jobs/monitor/config.toml", MONITOR.format(name="monitor", own=own, url=f"{own}?by=monitor"))
    project.save("jobs/hooked/config.toml", MONITOR.format(name="hooked", own=own, url=f"{elsewhere}/page"))
    with project.daemon("--port", str(port)) as daemon:
        found = project.result("script")
        assert isinstance(found, dict)
        for way, said in found.items():
            assert "which is this daemon" in said, f"{way}: {said}"
        for job in ("pinging", "monitor", "hooked"):
            project.spyweb("run", job, code=None)
        assert "this daemon" in project.runs("monitor")[0].reason
        for by in ("the heartbeat has not arrived", '"channel": "ping"', '"channel": "webhook"', '"channel": "alert"'):
            eventually(partial(refused, daemon, by), by)
        assert project.result("named") == [200, 401, 401, 401, 401]
        assert project.result("hits") == {"named": "yes"}
