"""The ways to a daemon, and what is said where one leads nowhere."""

from __future__ import annotations

import http.client
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from socket import create_server

import pytest
import trustme

from spyweb.cli.client import DaemonClient
from spyweb.cli.transport import SocketTransport, UrlTransport
from spyweb.errors import Refused
from tests.fakes.daemon_service import FakeDaemonService, three_jobs
from tests.fakes.daemon_socket import serve_daemon_tcp
from tests.fakes.web_server import unused_port


def ask(url: str, key: str | None = None) -> str:
    """Return why the daemon there can't be asked for its jobs; nothing where it can."""
    try:
        assert DaemonClient(UrlTransport(url, key)).jobs() == three_jobs()
    except Refused as refused:
        return str(refused).replace("\n", "a second line")
    return ""


@contextmanager
def answering(*answer: bytes) -> Iterator[str]:
    """Serve one connection with these bytes."""
    with create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65_536)
                connection.sendall(b"".join(answer))

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread.join()


def answer_of(status: str, body: bytes, kind: str = "application/json", more: str = "") -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n{more}\r\n"
    return head.encode() + body


def test_a_daemon_is_asked_over_tcp_with_and_without_a_key() -> None:
    with serve_daemon_tcp(FakeDaemonService()) as url:
        assert ask(url) == ask(f"{url}/") == ""
    with serve_daemon_tcp(FakeDaemonService(), "s3cret") as url:
        assert ask(url, "s3cret") == ""
        assert ask(url) == f"{url}: needs a key: set SPYWEB_API_KEY"
        assert ask(url, "guess") == f"{url}: does not accept the key in SPYWEB_API_KEY"


def test_tls_needs_a_certificate_that_is_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority, context = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    with serve_daemon_tcp(FakeDaemonService(), tls=context) as url:
        assert url.startswith("https://")
        assert ask(url).startswith(f"{url}: its certificate is not trusted: ")
        plain = url.replace("https", "http")
        assert ask(plain) == f"{plain}: the connection was closed before the answer had come: does it speak https://?"
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
        assert ask(url) == ""


def test_plain_http_is_no_tls() -> None:
    with serve_daemon_tcp(FakeDaemonService()) as url:
        assert "does it speak plain http://?" in ask(url.replace("http", "https"))


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (answer_of("200 OK", b"<html>", "text/html"), "what answers there is no spyweb (it answers 200)"),
        (answer_of("404 Not Found", b"no", "text/plain"), "what answers there is no spyweb (it answers 404)"),
        (answer_of("200 OK", b'{"a": 1}'), "what answers there is no spyweb, or another version of it (Expected"),
        (answer_of("200 OK", b"\xff"), "what answers there is no spyweb, or another version of it ("),
        (
            answer_of("301 Moved", b"", more="Location: https://x.example/\x1b[31m\r\n"),
            "leads elsewhere, to https://x.example/ [31m",
        ),
        (answer_of("403 Forbidden", b'{"error": "reader lacks the right run"}'), "reader lacks the right run"),
        (b"220 mail.example ESMTP\r\n", "what answers there is no spyweb"),
        (b"", "the connection was closed before the answer had come: does it speak https://?"),
    ],
)
def test_what_is_no_spyweb_or_says_no_is_told_in_a_line(answer: bytes, told: str) -> None:
    with answering(answer) as url:
        assert ask(url).startswith(f"{url}: {told}")


def test_nobody_there_and_no_such_host() -> None:
    url = f"http://127.0.0.1:{unused_port()}"
    assert ask(url) == f"{url}: nobody listens there"
    assert ask("http://no.such.host.invalid").startswith("http://no.such.host.invalid: the host can't be resolved: ")


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
    reason = ask(url)
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
    assert "no spyweb" in str(UrlTransport("http://h", None).refusal(http.client.BadStatusLine("x")))
