"""Somebody without a key acknowledges an incident by the link that their phone was sent, of a real daemon."""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.fakes.alert_services import open_services
from tests.fakes.hook import open_hook
from tests.fakes.project import Daemon, Project, eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

SITE = "https://spyweb.example.org"
CONFIG = """[server]
public_url = "{site}/"
[channels.ops]
webhook = "{hook}"
[channels.phone]
url = "ntfy://127.0.0.1:{port}/t0pic"
[alerts]
to = ["ops", "phone"]
after_failures = 1
"""
FAILS = """function run()
  error("no space")
end
"""
FROM_A_MAIL_PROGRAM = {"Host": "spyweb.example.org", "Origin": "null", "Accept": "text/html"}


def ask(daemon: Daemon, method: str, link: str) -> tuple[int, str]:
    """Follow a link as a reverse proxy passes it on."""
    assert link.startswith(f"{SITE}/a/")
    answer = daemon.ask(link.removeprefix(SITE), method, b"" if method == "POST" else None, **FROM_A_MAIL_PROGRAM)
    return answer.status, answer.body.decode()


def acked_by(project: Project) -> object:
    return json.loads(project.spyweb("alerts", "show", "1", "-o", "json").stdout)["acked_by"]


def test_a_link_outlives_a_crash_and_its_button_alone_acknowledges(tmp_path: Path) -> None:
    project = Project(tmp_path / "project", is_quick=True)
    project.environment["SPYWEB_API_KEY"] = "0wner-0f-all"
    project.job("backup", FAILS)
    with open_hook() as hook, open_services(tmp_path) as services:
        project.save("config.toml", CONFIG.format(site=SITE, hook=hook.url, port=services.port))
        with project.daemon() as daemon:
            project.spyweb("run", "backup", code=1)
            eventually(lambda: hook.bodies and services.arrived, "both are told")
            daemon.kill()
        (item,) = json.loads(hook.bodies[0])["items"]
        found = re.search(rf"Acknowledge: ({SITE}\S+)", services.arrived[0].json["message"])
        assert found
        of_ops, of_phone = str(item["ack_url"]), found[1]
        assert [parse_qs(urlsplit(link).query)["c"] for link in (of_ops, of_phone)] == [["ops"], ["phone"]]

        with project.daemon() as daemon:
            status, page = ask(daemon, "GET", of_phone)
            assert (status, "no space" in page, ">Acknowledge</button>" in page) == (200, True, True)
            assert acked_by(project) == ""
            assert ask(daemon, "POST", of_phone.replace("c=phone", "c=ops"))[0] == 404
            assert acked_by(project) == ""
            assert ask(daemon, "POST", of_phone)[0] == 200
            assert acked_by(project) == "phone"
            assert ask(daemon, "POST", of_ops)[0] == 200
            assert acked_by(project) == "phone", "the first one counts"
            said = daemon.said()
            daemon.stop()

    signatures = [parse_qs(urlsplit(link).query)["s"][0] for link in (of_ops, of_phone)]
    kept = b"".join(file.read_bytes() for file in (project.root / "data").iterdir() if file.is_file())
    assert not any(each in said or each.encode() in kept for each in signatures)
    with closing(sqlite3.connect(project.root / "data/spyweb.db")) as database:
        (audited,) = database.execute("SELECT DISTINCT action, source FROM audit WHERE who = 'phone'").fetchall()
    assert audited == ("POST /a/{incident}", "link")
