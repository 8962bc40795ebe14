"""Who may come in over HTTP: keys and sessions of a real daemon, TLS, and a stop that is not held up."""

from __future__ import annotations

import re
import socket
import ssl
import subprocess
from contextlib import ExitStack, closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path
from urllib.parse import urlencode

import pytest

from tests.fakes.certificates import self_signed
from tests.fakes.http_client import Reply, ask, connect
from tests.fakes.project import COMMAND, Daemon, Project, eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


@dataclass(frozen=True, slots=True)
class Server:
    """A daemon's HTTP server, as others reach it."""

    port: int
    tls: ssl.SSLContext | None = None

    @property
    def origin(self) -> str:
        return f"{'https' if self.tls else 'http'}://localhost:{self.port}"

    def ask(self, method: str, path: str, key: str = "", body: str = "", **headers: str) -> Reply:
        given = {**headers, **({"X_SpyWeb_Key": key} if key else {})}
        return ask(self.origin, path, method, body or None, given, self.tls)

    def status(self, method: str, path: str, key: str = "", **headers: str) -> int:
        return self.ask(method, path, key, **headers).status

    def sign_in(self, key: str, **headers: str) -> Reply:
        form = {"Content_Type": "application/x-www-form-urlencoded", "Origin": self.origin}
        return self.ask("POST", "/sign-in", body=urlencode({"key": key, "back": "/"}), **{**form, **headers})


def server_of(daemon: Daemon, tls: ssl.SSLContext | None = None) -> Server:
    found = re.search(r'"url": "(https?)://127.0.0.1:(\d+)"', daemon.said())
    assert found
    assert found[1] == ("https" if tls else "http")
    return Server(int(found[2]), tls)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    found = Project(tmp_path)
    found.job("prices", "return 1")
    found.job("backup", "return 2")
    return found


def make_key(project: Project, *words: str) -> str:
    return project.spyweb("keys", "add", *words).stdout.strip()


def test_keys_work_at_once_and_a_revoked_one_is_refused_at_once(project: Project) -> None:
    with project.daemon() as daemon:
        server = server_of(daemon)
        assert server.status("GET", "/api/jobs") == 200

        reader = make_key(project, "reader")
        limited = make_key(project, "limited", "--scope", "run", "--job", "pri*")

        assert server.status("GET", "/api/jobs") == 401
        assert server.status("GET", "/api/jobs", reader) == 200
        assert server.status("POST", "/api/jobs/prices/trigger", reader) == 403
        assert server.status("POST", "/api/jobs/prices/trigger", limited) == 200
        assert server.status("POST", "/api/jobs/backup/trigger", limited) == 403
        assert [job["id"] for job in server.ask("GET", "/api/jobs", limited).json] == ["prices"]
        assert {run.job for run in project.ended("prices")} == {"prices"}

        with closing(connect(server.origin)) as connection:
            connection.request("GET", "/api/state/watch?namespace=job:prices", headers={"X-SpyWeb-Key": limited})
            stream = connection.getresponse()
            assert stream.readline() == b"\n"
            project.spyweb("keys", "revoke", "limited")
            assert stream.read().strip() == b""
        assert server.status("GET", "/api/jobs", limited) == 401

        lines = project.ask("keys", "audit")
        assert [(line["who"], line["action"], line["status"]) for line in reversed(lines)] == [
            ("local", "POST /api/keys", 200),
            ("local", "POST /api/keys", 200),
            ("reader", "POST /api/jobs/{job}/trigger", 403),
            ("limited", "POST /api/jobs/{job}/trigger", 200),
            ("limited", "POST /api/jobs/{job}/trigger", 403),
            ("local", "DELETE /api/keys/{name}", 200),
            ("nobody", "GET /api/jobs", 401),
        ]
        environment = {**project.environment, "SPYWEB_API_KEY": make_key(project, "far", "--scope", "admin")}
        command = [*COMMAND, "--url", f"http://localhost:{server.port}", "keys", "list"]
        listed = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
        assert [line.split()[0] for line in listed.splitlines()] == ["name", "far", "reader"]
        assert daemon.stop() == 0


def test_a_session_lasts_over_a_restart_and_ends_with_its_key(project: Project) -> None:
    token = make_key(project, "phone", "--scope", "admin")
    project.environment["SPYWEB_API_KEY"] = "long-and-random-words"
    with project.daemon() as daemon:
        server = server_of(daemon)
        assert server.status("GET", "/api/jobs", "long-and-random-wordz") == 401
        signed_in = server.sign_in(token)
        assert (signed_in.status, signed_in.headers["Location"]) == (303, "/")
        name, _, cookie = signed_in.headers["Set-Cookie"].partition(";")[0].partition("=")
        assert name == f"spyweb_{server.port}"
        assert server.status("GET", "/api/me", Cookie=f"{name}={cookie}") == 200
        assert daemon.stop() == 0
    with project.daemon() as daemon:
        server = server_of(daemon)
        browser = {"Cookie": f"spyweb_{server.port}={cookie}"}
        assert server.ask("GET", "/api/me", **browser).json == {
            "name": "phone", "source": "session", "rights": ["read", "run", "state", "admin"], "jobs": [],
        }  # fmt: skip
        assert server.status("POST", "/api/jobs/prices/trigger", Origin="https://evil.example", **browser) == 403
        project.spyweb("keys", "revoke", "phone")
        make_key(project, "other")
        assert server.status("GET", "/api/me", **browser) == 401
        daemon.stop()
        log = daemon.said()
    secrets = [token[15:], cookie, "long-and-random-words", "long-and-random-wordz"]
    assert not [secret for secret in secrets if secret in log]
    said = [path for path in project.root.rglob("*") if path.is_file() and path.suffix != ".lua"]
    assert not [path for path in said for secret in secrets if secret.encode() in path.read_bytes()]


def test_another_address_needs_a_key_and_a_stored_one_is_enough(project: Project) -> None:
    refused = project.spyweb("start", "--host", "0.0.0.0", "--port", "0", code=2)
    assert "0.0.0.0 can be reached from other machines: set SPYWEB_API_KEY" in refused.stdout + refused.stderr
    token = make_key(project, "phone")
    with project.daemon("--host", "0.0.0.0") as daemon:
        server = server_of(daemon)
        assert server.status("GET", "/api/jobs", token) == 200
        assert server.status("GET", "/api/jobs") == 401


def put_certificate(project: Project, name: str = "localhost") -> ssl.SSLContext:
    """Write a certificate and its key; return what trusts it."""
    now = datetime.now(tz=UTC)
    pem = self_signed(name, now - timedelta(days=1), now + timedelta(days=1)).decode()
    key, mark, certificate = pem.partition("-----BEGIN CERTIFICATE")
    project.save("tls/key.pem", key)
    path = project.save("tls/cert.pem", mark + certificate)
    context = ssl.create_default_context(cafile=path)
    context.check_hostname = name == "localhost"
    return context


TLS = '[server]\ntls_cert = "tls/cert.pem"\ntls_key = "tls/key.pem"\n'


def test_the_server_speaks_tls_and_cookies_are_secure(project: Project) -> None:
    trusting = put_certificate(project)
    project.save("config.toml", TLS)
    token = make_key(project, "phone", "--scope", "run")
    with project.daemon() as daemon:
        server = server_of(daemon, trusting)
        assert server.status("POST", "/api/jobs/prices/trigger", token) == 200
        cookie = server.sign_in(token).headers["Set-Cookie"]
        assert cookie.startswith(f"__Host-spyweb_{server.port}=")
        assert {"Secure", "HttpOnly", "SameSite=Strict"} <= set(cookie.split("; "))
        with ExitStack() as flood:
            for _ in range(50):  # that never shake hands
                flood.enter_context(closing(socket.create_connection(("127.0.0.1", server.port))))
            assert server.status("GET", "/api/jobs", token) == 200
            assert daemon.stop() == 0


def test_a_certificate_that_can_not_be_used_is_one_line_at_the_start(project: Project) -> None:
    project.save("config.toml", TLS)
    refused = project.spyweb("start", "--port", "0", code=2)
    reason = f"[server] tls_cert: {project.root}/tls/cert.pem: No such file or directory"
    assert reason in refused.stdout + refused.stderr
    assert "Traceback" not in refused.stdout + refused.stderr


def test_a_proxy_passes_requests_on_under_the_name_that_is_listed(project: Project) -> None:
    project.save("config.toml", '[server]\nhosts = ["spyweb.example.org"]\n')
    with project.daemon() as daemon:
        server = server_of(daemon)
        passed_on = {"Host": "spyweb.example.org", "X_Forwarded_Proto": "https"}
        assert daemon.has_said("hosts needs a key: without one, only this machine is served")
        assert server.status("GET", "/api/jobs", **passed_on) == 403
        token = make_key(project, "phone")
        signed_in = server.sign_in(token, **passed_on, Origin="https://spyweb.example.org")
        assert "; Secure" in signed_in.headers["Set-Cookie"]
        other = {**passed_on, "Host": "other.example", "Origin": "https://other.example"}
        assert server.sign_in(token, **other).status == 403


def test_a_script_is_not_shown_what_lets_its_callers_in(project: Project) -> None:
    project.save("server/init.lua", "function get:self() return { body = self.headers } end public.get.self = get.self")
    token = make_key(project, "app", "--scope", "run")
    with project.daemon() as daemon:
        server = server_of(daemon)
        eventually(lambda: server.status("GET", "/api/v/self", token) == 200)
        cookie = f"a=b; spyweb_{server.port}=secret;spyweb_1=secret; c=d"
        for headers, kind in product(
            ({"X_SpyWeb_Key": token}, {"Authorization": f"Bearer {token}"}, {"authorization": f"bearer  {token} "}),
            ("v", "public"),
        ):
            answer = server.ask("GET", f"/api/{kind}/self", **headers, Cookie=cookie)
            assert answer.status == 200
            assert b"secret" not in answer.body
            assert token[15:].encode() not in answer.body
            assert answer.json["cookie"] == "a=b; c=d"
        own = server.ask("GET", "/api/v/self", token, Authorization="Bearer of the project")
        assert b"Bearer of the project" in own.body
