"""A status page of a real daemon: public beside a dashboard that is not, with what people write, and as files."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests.fakes.project import Project, eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

MARK = "s3cr3t"
CONFIG = f"""
[status_page]
title = "Example status"
public = true
groups = [{{ name = "Web", jobs = ["site", "shop"] }}]
export = "out"
[[maintenance]]
cron = "0 3 * * *"
duration = "1h"
jobs = ["site"]
text = "{MARK}"
"""


def get(url: str, **headers: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers)) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_everybody_sees_what_is_up_and_what_people_write_and_nothing_else(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.save("config.toml", CONFIG)
    project.job(
        "site", f'log("{MARK}")\nreturn {{ latency = 12, detail = "{MARK}" }}', f'description = "{MARK}"\nevery = "1s"'
    )
    project.job("shop", f'error("https://{MARK}.internal/")', 'name = "Shop"\nevery = "1s"')
    with project.daemon() as daemon:
        started = next(json.loads(line) for line in daemon.said().splitlines() if '"started"' in line)
        page, dashboard = f"{started['url']}/status/", started["dashboard"]
        stranger = {"Host": "status.example.org", "X-Forwarded-For": "192.0.2.1"}
        eventually(lambda: "is down" in get(page)[1], "the incident is shown")
        project.spyweb("alerts", "note", "1", "We are on it.", "--public")
        project.spyweb("alerts", "note", "1", MARK)
        eventually(lambda: "We are on it." in get(f"{page}feed.xml", **stranger)[1], "the note is shown")
        view = json.loads(get(f"{page}status.json", **stranger)[1])
        assert [(job["name"], job["state"]) for job in view["groups"][0]["jobs"]] == [("site", "up"), ("Shop", "down")]
        assert view["words"] == "1 of 2 down"
        assert [each["jobs"] for each in view["maintenance"]][:1] == [["site"]]
        assert get(f"{dashboard}/status/")[0] == 404
        assert get(f"{started['url']}/api/jobs", **stranger)[0] == 403
        eventually(lambda: "We are on it." in read(tmp_path / "out/index.html"), "the export is written")
        written = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
        assert {"index.html", "status.json", "feed.xml", "site.svg", "shop.svg"} <= written.keys()
        assert [name for name, content in written.items() if MARK.encode() in content] == []
        project.save("config.toml", CONFIG.replace("public = true", "public = false"))
        eventually(lambda: get(page, **stranger)[0] == 403, "an edit applies at once")
        assert get(page)[0] == 200


def read(path: Path) -> str:
    return path.read_text() if path.exists() else ""
