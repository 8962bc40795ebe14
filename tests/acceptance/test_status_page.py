"""A status page of a real daemon: public beside a dashboard that is not, with what people write, and as files."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests.fakes.project import Project, eventually
from tests.fakes.status import CONFIG, MARK

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

MAINTENANCE = f"""
[[maintenance]]
cron = "0 {(time.localtime().tm_hour + 3) % 24} * * *"
duration = "1h"
jobs = ["shop"]
text = "{MARK}"
"""


def get(url: str, **headers: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers)) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_everybody_sees_what_is_up_and_what_people_write_and_nothing_else(tmp_path: Path) -> None:
    project, exported = Project(tmp_path, is_quick=True), tmp_path / MARK / "out"
    project.save("config.toml", CONFIG + MAINTENANCE)
    talks = f'log("{MARK}")\nreturn {{ latency = 12, detail = "{MARK}" }}'
    project.job("shop", talks, f'description = "{MARK}"\nevery = "1s"')
    project.job("database", f'error("https://{MARK}.internal/")', 'name = "Database"\nevery = "100ms"')
    with project.daemon() as daemon:
        started = next(json.loads(line) for line in daemon.said().splitlines() if '"started"' in line)
        page, dashboard = f"{started['url']}/status/", started["dashboard"]
        stranger = {"Host": "status.example.org", "X-Forwarded-For": "192.0.2.1"}
        eventually(lambda: "is down" in get(page)[1], "the incident is shown")
        known = project.daemon_client().incidents(is_open=True, limit=9)
        incident = next(str(each.id) for each in known if each.subject == "job:database")
        project.spyweb("alerts", "note", incident, "We are on it.", "--public")
        project.spyweb("alerts", "note", incident, MARK)
        eventually(lambda: "We are on it." in get(f"{page}feed.xml", **stranger)[1], "the note is shown")
        eventually(lambda: '"shop","state":"up"' in get(f"{page}status.json")[1], "a result of the other job")
        view = json.loads(get(f"{page}status.json", **stranger)[1])
        assert [job["state"] for job in view["groups"][0]["jobs"]] == ["down", "up"]
        assert view["words"] == "1 of 2 services down"
        assert [each["jobs"] for each in view["maintenance"]][:1] == [["shop"]]
        assert get(f"{dashboard}/status/")[0] == 404
        assert get(f"{started['url']}/api/jobs", **stranger)[0] == 403
        eventually(lambda: "We are on it." in read(exported / "index.html"), "the export is written")
        written = {path.name: path.read_bytes() for path in exported.iterdir()}
        assert {"index.html", "status.json", "feed.xml", "database.svg", "shop.svg"} <= written.keys()
        assert [name for name, content in written.items() if MARK.encode() in content] == []
        project.save("config.toml", CONFIG.replace("public = true", "public = false"))
        eventually(lambda: get(page, **stranger)[0] == 403, "an edit applies at once")
        assert get(page)[0] == 200


def read(path: Path) -> str:
    return path.read_text() if path.exists() else ""
