"""The command line's client: the ways to a daemon, and what is said where one leads nowhere."""

from __future__ import annotations

import asyncio
import http.client
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from socket import create_server
from typing import TypeVar

import pytest
import trustme

from spyweb.cli.client import DaemonClient, SocketTransport, UrlTransport, find_daemon
from spyweb.daemon.commands.run import RunOptions, run_in_daemon
from spyweb.errors import NoAccess, Refused
from spyweb.model import JobId
from spyweb.subjects.jobs.commands import start_run
from spyweb.views.runs import RunEvent
from spyweb.web.connections import ConnectionLimiter, ConnectionLimits
from spyweb.web.serve import serve_socket
from tests.fakes.clock import FakeClock
from tests.fakes.daemon_service import PRICES, FakeDaemonService, a_watched_run, refused, three_jobs
from tests.fakes.daemon_socket import let_in, serve_daemon_tcp
from tests.fakes.web_server import unused_port

T = TypeVar("T")


async def ask(service: FakeDaemonService, data_dir: Path, question: Callable[[DaemonClient], T]) -> T:
    """Ask from a thread, as another process would, while the loop answers."""
    async with serve_socket(service, data_dir):
        daemon = find_daemon(data_dir)
        assert daemon is not None
        try:
            return await asyncio.to_thread(question, daemon)
        finally:
            await let_in()


async def test_a_start_that_the_overlap_rule_drops_has_no_run(tmp_path: Path) -> None:
    assert await ask(FakeDaemonService(next_id=None), tmp_path, lambda daemon: start_run(daemon, PRICES)) is None


async def test_a_job_whose_id_is_no_url_is_reached_all_the_same(tmp_path: Path) -> None:
    with pytest.raises(Refused, match=r"no job is named 'a/\.\./ü\?b'"):
        await ask(FakeDaemonService(), tmp_path, lambda daemon: start_run(daemon, JobId("a/../ü?b")))


@pytest.mark.parametrize(
    "service",
    [FakeDaemonService(refusal=refused()), FakeDaemonService(late_refusal=refused(), events=a_watched_run()[:2])],
)
async def test_a_refusal_before_or_within_a_run_is_raised_here(service: FakeDaemonService, tmp_path: Path) -> None:
    with pytest.raises(Refused, match=r"^prices is running$"):
        await ask(service, tmp_path, lambda daemon: run_in_daemon(daemon, PRICES, print, RunOptions()))


async def test_a_stream_that_ends_before_the_run_does_is_told(tmp_path: Path) -> None:
    service = FakeDaemonService(events=a_watched_run()[:2])  # the stream ends without an end of the run
    with pytest.raises(Refused, match="closed the connection before the end of the run"):
        await ask(service, tmp_path, lambda daemon: run_in_daemon(daemon, PRICES, print, RunOptions()))


async def test_an_error_of_whoever_watches_a_run_is_not_taken_for_the_daemons(tmp_path: Path) -> None:
    def watch(event: RunEvent) -> None:
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        await ask(FakeDaemonService(), tmp_path, lambda daemon: run_in_daemon(daemon, PRICES, watch, RunOptions()))


async def test_a_daemon_that_ends_before_the_run_does_is_told(tmp_path: Path) -> None:
    def watch(event: RunEvent) -> None:
        (tmp_path / "spyweb.sock").unlink(missing_ok=True)

    service = FakeDaemonService(events=a_watched_run()[:2])
    with pytest.raises(Refused, match="the daemon ended before the end of the run"):
        await ask(service, tmp_path, lambda daemon: run_in_daemon(daemon, PRICES, watch, RunOptions()))


async def test_a_connection_too_many_is_told(tmp_path: Path) -> None:
    full = ConnectionLimiter(ConnectionLimits(total=0, of_one_address=0), FakeClock())
    async with serve_socket(FakeDaemonService(), tmp_path, full):
        daemon = find_daemon(tmp_path)
        assert daemon is not None
        with pytest.raises(
            Refused, match=r"the daemon (refuses the connection \(503\): too many|closed the connection)"
        ):
            await asyncio.to_thread(daemon.jobs)
        await let_in()


async def test_what_is_refused_before_all_of_it_was_sent_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spyweb.limits.SOCKET_BODY", 1 << 20)
    line = (bytes(100_000) for _ in range(200))
    with pytest.raises(Refused, match="a line may be 1 MB"):
        await ask(
            FakeDaemonService(), tmp_path, lambda daemon: daemon.ask("POST", "/api/state/import", dict, body=line)
        )


def test_a_daemon_that_takes_no_connection_is_not_taken_for_one_that_is_gone(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as stuck, socket.socket(socket.AF_UNIX) as waiting:
        stuck.bind(str(tmp_path / "spyweb.sock"))
        stuck.listen(0)
        waiting.connect(stuck.getsockname())  # all that its queue holds
        with pytest.raises(Refused, match="the daemon runs, but accepts no connection"):
            find_daemon(tmp_path)


# -- no daemon, or a strange one ------------------------------------------------------------------------------


def test_no_socket_and_no_data_directory_is_no_daemon(tmp_path: Path) -> None:
    assert find_daemon(tmp_path) is None
    assert find_daemon(tmp_path / "absent") is None


def test_the_socket_of_a_killed_daemon_is_no_daemon(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(tmp_path / "spyweb.sock"))
    assert find_daemon(tmp_path) is None


@contextmanager
def answering(answer: bytes, listener: socket.socket | None = None, connections: int = 1) -> Iterator[str]:
    """Answer every connection with these bytes, by TCP where no socket listens already."""
    with listener or create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            for _ in range(connections):
                connection, _ = listening.accept()
                with connection:
                    connection.settimeout(5)
                    if connection.recv(65_536):
                        connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield "" if listener else f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            thread.join(5)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"", "closed the connection before it answered"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n[", "closed the connection before it answered"),
        (b'HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n[{"id": 1}]', "another version"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", "another version"),
        (b"not HTTP at all\r\n\r\n", "closed the connection before it answered"),
    ],
)
def test_an_answer_that_makes_no_sense_is_one_clear_line(tmp_path: Path, answer: bytes, words: str) -> None:
    impostor = socket.socket(socket.AF_UNIX)
    impostor.bind(str(tmp_path / "spyweb.sock"))
    impostor.listen()
    with answering(answer, impostor, connections=2):  # find_daemon's knock, then the question
        daemon = find_daemon(tmp_path)
        assert daemon is not None
        with pytest.raises(Refused, match=words):
            daemon.jobs()


def test_a_socket_that_may_not_be_opened_says_whose_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("spyweb.cli.client.UnixConnection.connect", refuse)
    monkeypatch.setattr("os.access", lambda *_, **__: False)
    monkeypatch.setattr("os.geteuid", lambda: 54321)
    with pytest.raises(NoAccess, match=r"belongs to .* use `sudo -u "):
        find_daemon(tmp_path)


def why_not(url: str, key: str | None = None) -> str:
    """Return why the daemon there can't be asked for its jobs; nothing where it can."""
    try:
        assert DaemonClient(UrlTransport(url, key)).jobs() == three_jobs()
    except Refused as refused:
        return str(refused).replace("\n", "a second line")
    return ""


def answer_of(status: str, body: bytes, kind: str = "application/json", more: str = "") -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n{more}\r\n"
    return head.encode() + body


def test_a_daemon_is_asked_over_tcp_with_and_without_a_key() -> None:
    with serve_daemon_tcp(FakeDaemonService()) as url:
        assert why_not(url) == why_not(f"{url}/") == ""
    with serve_daemon_tcp(FakeDaemonService(), "s3cret") as url:
        assert why_not(url, "s3cret") == ""
        assert why_not(url) == f"{url}: needs a key: set SPYWEB_API_KEY"
        assert why_not(url, "guess") == f"{url}: does not accept the key in SPYWEB_API_KEY"


def test_tls_needs_a_certificate_that_is_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority, context = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    with serve_daemon_tcp(FakeDaemonService(), tls=context) as url:
        assert url.startswith("https://")
        assert why_not(url).startswith(f"{url}: its certificate is not trusted: ")
        plain = url.replace("https", "http")
        assert (
            why_not(plain) == f"{plain}: the connection was closed before the answer arrived: does it speak https://?"
        )
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
        assert why_not(url) == ""


def test_plain_http_is_no_tls() -> None:
    with serve_daemon_tcp(FakeDaemonService()) as url:
        assert "does it speak plain http://?" in why_not(url.replace("http", "https"))


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (answer_of("200 OK", b"<html>", "text/html"), "the server that answers is not spyweb (it answers 200)"),
        (answer_of("404 Not Found", b"no", "text/plain"), "the server that answers is not spyweb (it answers 404)"),
        (answer_of("200 OK", b'{"a": 1}'), "the server that answers is not spyweb, or another version of it (Expected"),
        (answer_of("200 OK", b"\xff"), "the server that answers is not spyweb, or another version of it ("),
        (
            answer_of("301 Moved", b"", more="Location: https://x.example/\x1b[31m\r\n"),
            "redirects to https://x.example/ [31m",
        ),
        (answer_of("403 Forbidden", b'{"error": "reader lacks the right run"}'), "reader lacks the right run"),
        (b"220 mail.example ESMTP\r\n", "the server that answers is not spyweb"),
        (b"", "the connection was closed before the answer arrived: does it speak https://?"),
    ],
)
def test_what_is_no_spyweb_or_says_no_is_told_in_a_line(answer: bytes, told: str) -> None:
    with answering(answer) as url:
        assert why_not(url).startswith(f"{url}: {told}")


def test_nobody_there_and_no_such_host() -> None:
    url = f"http://127.0.0.1:{unused_port()}"
    assert why_not(url) == f"{url}: nothing listens there"
    assert why_not("http://no.such.host.invalid").startswith(
        "http://no.such.host.invalid: the host can't be resolved: "
    )


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("example.com:7979", "is no URL of a daemon: expected http://HOST:PORT or https://HOST"),
        ("ftp://example.com", "is no URL of a daemon"),
        ("http://", "is no URL of a daemon"),
        ("http://[::1", "is no URL: "),
        ("http://h:99999", "is no URL: "),
        ("http://me:secret@example.com", "a URL has no user or query here"),
        ("http://example.com/?key=s3cret", "a URL has no user or query here"),
        ("http://exa mple.com", "has a character in it that no header can hold"),
    ],
)
def test_what_is_no_url_is_told_without_secrets(url: str, told: str) -> None:
    reason = why_not(url)
    assert told in reason
    assert "s3cret" not in reason
    assert "secret" not in reason


def test_a_proxy_may_serve_it_below_a_path() -> None:
    with answering(answer_of("200 OK", b"[]")) as url:
        assert DaemonClient(UrlTransport(f"{url}/spyweb/", None)).jobs() == []


def test_an_error_that_is_none_of_the_connection_is_raised_as_it_is() -> None:
    with pytest.raises(IsADirectoryError):
        SocketTransport(Path()).refusal(IsADirectoryError())
    assert "has not answered" in str(SocketTransport(Path()).refusal(TimeoutError()))
    assert "not spyweb" in str(UrlTransport("http://h", None).refusal(http.client.BadStatusLine("x")))
