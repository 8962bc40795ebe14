"""The HTTP API of a real daemon: a person's way through it, wrong requests, and requests made of its own document."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.fakes.http_client import Reply
from tests.fakes.project import Daemon, Project, eventually
from tests.fakes.repository import read

pytestmark = [pytest.mark.slow, pytest.mark.timeout(150)]

KEY = "s3cret"
SECONDS = 120  # for the requests of the document, on a machine that is busy
ENDLESS = "^/api/(events|state/watch)$"
LINES = "^/api/state/import$"  # the tool can't make lines
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"


@dataclass(frozen=True, slots=True)
class Api:
    project: Project
    daemon: Daemon

    def ask(self, method: str, path: str, body: object = None, *, raw: bytes | None = None) -> Reply:
        content = raw if raw is not None else None if body is None else json.dumps(body)
        return self.daemon.ask(path, method, content, X_SpyWeb_Key=KEY)

    def outcome(self, run: int) -> str | None:
        runs = self.ask("GET", "/api/runs?limit=100").json
        return next((each["outcome"] for each in runs if each["id"] == run), None)


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    project = Project(tmp_path)
    project.environment["SPYWEB_API_KEY"] = KEY
    project.job("echo", "function run(ctx) return ctx.trigger.payload end")
    project.job("slow", "function run() while true do sleep(50) end end", 'every = "never"\noverlap = "queue"')
    with project.daemon() as daemon:
        yield Api(project, daemon)


def test_a_payload_reaches_the_script_and_a_run_is_cancelled(api: Api) -> None:
    run = api.ask("POST", "/api/jobs/echo/trigger", {"branch": "main", "n": [1, 2]}).json["run"]
    eventually(lambda: api.outcome(run) == "success")
    (found,) = api.ask("GET", "/api/runs?job=echo&limit=1").json
    assert json.loads(found["result"]) == {"branch": "main", "n": [1, 2]}

    first, second = (api.ask("POST", "/api/jobs/slow/trigger").json["run"] for _ in range(2))
    assert api.ask("POST", f"/api/runs/{second}/cancel").json == {"run": second, "job": "slow"}
    eventually(lambda: api.outcome(second) == "skipped")
    assert api.ask("POST", f"/api/runs/{first}/cancel").status == 200
    eventually(lambda: api.outcome(first) == "failed")
    assert api.ask("POST", f"/api/runs/{first}/cancel").json["code"] == "refused"


def test_records_are_searched_and_exported(api: Api) -> None:
    records = [
        {"hash": "YQ==", "fields": {"title": "=Größer"}, "url": "http://a.example/", "found_ns": 5_000_000_000},
        {"hash": "Yg==", "fields": {"title": "small, one"}, "matches": ["sale"], "found_ns": 9_000_000_000},
    ]
    assert api.ask("POST", "/api/state/records?job=shop", records).json == {"added": 2}
    found = api.ask("GET", "/api/records?q=gr%C3%96SSER").json
    assert ([each["title"] for each in found["records"]], found["has_more"]) == (["=Größer"], False)
    assert [each["title"] for each in api.ask("GET", "/api/records?since=6000").json["records"]] == ["small, one"]
    assert api.ask("GET", "/api/records?q=x&job_id=other").json["records"] == []
    table = api.ask("GET", "/api/records.csv?job_id=shop").body.decode()
    assert table.splitlines()[0] == "date_time,job,title,keywords,page_url,other_fields,old"
    assert [line.split(",", 2)[2] for line in table.splitlines()[1:]] == [
        '"small, one",sale,,,',
        "'=Größer,,http://a.example/,,",
    ]
    exact = api.ask("GET", "/api/records.csv?job_id=shop&spreadsheet=0").body.decode()
    assert ",=Größer," in exact
    assert api.ask("GET", "/api/records.csv?since=x").status == 400


def test_the_requests_of_the_how_to_work_as_they_stand(api: Api) -> None:
    page = re.sub(r"\$\(([^)]+)\)", said_by_shell, read("docs/how-to/http-api.md"))
    api.project.job("prices", 'log("looked")')
    api.project.job("deploy", "function run(ctx) return ctx.trigger.payload.branch end")
    eventually(lambda: len(api.ask("GET", "/api/jobs").json) == 4)
    run = api.ask("POST", "/api/jobs/slow/trigger").json["run"]
    commands = [line for block in re.findall(r"```sh\n(.*?)```", page, re.DOTALL) for line in joined(block)]
    asked = [shlex.split(line, comments=True) for line in commands if line.startswith("curl")]
    assert len(asked) > 15
    for words in asked:
        (address,) = (word.removeprefix("$URL") for word in words if word.startswith("$URL"))
        method = words[words.index("-X") + 1] if "-X" in words else "GET"
        body = words[words.index("-d") + 1].encode() if "-d" in words else None
        answer = api.ask(method, address.replace("/runs/12", f"/runs/{run}"), raw=body)
        assert answer.status == (400 if "limit=many" in address else 200), (words, answer.body)


def said_by_shell(found: re.Match[str]) -> str:
    return subprocess.run(["sh", "-c", found[1]], capture_output=True, text=True, check=True).stdout.strip()


def joined(block: str) -> list[str]:
    return block.replace("\\\n", " ").splitlines()


def test_requests_made_of_the_document_are_answered_as_it_says(api: Api, tmp_path: Path, torture: bool) -> None:
    """Nothing is answered with an error of the server, nor with a status or a body that the document does not have."""
    for key, value in (("a", "1"), ("b", '{"n": 1}')):
        api.ask("PUT", f"/api/state/entry?key={key}", raw=value.encode())
    run = api.ask("POST", "/api/jobs/echo/trigger", {"n": 1}).json["run"]
    config = tmp_path / "schemathesis.toml"
    config.write_text(f'[parameters]\n"path.job" = "echo"\n"path.run" = {run}\n')
    words = [
        sys.executable,
        "-m",
        "schemathesis.cli",
        "--config-file",
        str(config),
        "run",
        f"{api.daemon.url}/api/openapi.json",
    ]
    phases, examples = ("coverage,fuzzing", "20") if torture else ("fuzzing", "3")
    words += ["--checks", CHECKS, "--phases", phases, "--max-examples", examples, "--seed", "1"]
    words += ["--exclude-path-regex", f"{ENDLESS}|{LINES}", "--header", f"X-SpyWeb-Key: {KEY}"]
    words += ["--request-timeout", "20", "--warnings", "off", "--continue-on-failure"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stdout[-8_000:] + done.stderr[-2_000:]
    assert "a bug in the HTTP server" not in api.daemon.said()
    assert api.ask("GET", "/healthz").status == 200
