"""A client of the daemon for the commands: blocking HTTP, on the standard library alone.

It uses the socket in the daemon's data directory, or a URL.  Each of the two transports opens connections, and says in
one line why a request failed.
"""

from __future__ import annotations

import contextlib
import errno
import http.client
import socket
import ssl
import struct
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from spyweb.errors import NoAccess, Refused
from spyweb.model import JobId
from spyweb.settings.sections import SOCKET
from spyweb.settings.socket_path import name_for_kernel
from spyweb.store.access import no_access
from spyweb.views.jobs import JobView
from spyweb.words import cut

PATIENCE = 30.0  # seconds for an answer: a daemon that takes longer hangs
NOBODY = (errno.ENOENT, errno.ECONNREFUSED, errno.ENOTDIR)  # no daemon listens there
BUSY = "the daemon runs, but accepts no connection: it is blocked, or has no file descriptor left"
KEY_HEADER = "X-SpyWeb-Key"
API_KEY = "SPYWEB_API_KEY"
JSON_MEDIA = ("application/json", "application/x-ndjson", "text/event-stream")
LONGEST = 200  # characters of a server's error text
NO_SPYWEB = "the server that answers is not spyweb"
SILENT_S = 60.0  # the longest silence of a stream of events, in which the daemon sends signs of life
ERROR = b'{"error":'  # beginning of a line that reports an error

T = TypeVar("T")
Body = bytes | Iterable[bytes] | None


class UnixConnection(http.client.HTTPConnection):
    """An HTTP connection over a Unix socket."""

    def __init__(self, path: Path, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        with name_for_kernel(self._path) as name:
            self.sock.connect(name)


class SocketTransport:
    """The socket in the data directory of this machine's project.

    Each request has `headers`, and each path begins with `prefix`.
    """

    headers: Mapping[str, str] = {}
    prefix = ""

    def __init__(self, path: Path) -> None:
        self._path = path

    def connection(self) -> http.client.HTTPConnection:
        return UnixConnection(self._path, PATIENCE)

    def peer(self) -> tuple[int, int | None]:
        """Return the process that listens and its user, as this process sees them; pid 0: it is in another container.

        macOS does not tell the user.  Raises OSError.
        """
        with contextlib.closing(UnixConnection(self._path, PATIENCE)) as connection:
            connection.connect()
            if sys.platform == "darwin":
                return int(connection.sock.getsockopt(0, 2)), None  # SOL_LOCAL, LOCAL_PEERPID
            pid, uid, _ = struct.unpack("iII", connection.sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
            return pid, uid

    def is_from_a_daemon(self, answer: http.client.HTTPResponse) -> bool:
        return True

    def refusal(self, error: OSError | http.client.HTTPException) -> Refused:
        """Say why a request could not be sent, or was not answered."""
        match error:
            case TimeoutError():
                return Refused(f"the daemon has not answered for {PATIENCE:.0f} s")
            case BlockingIOError():
                return Refused(BUSY)
            case http.client.HTTPException() | ConnectionError():
                return Refused(self.cut_off("it answered"))
            case _:
                raise error

    def refusal_of(self, answer: http.client.HTTPResponse, body: bytes) -> Refused:
        return Refused(error_in(body) or f"the daemon refuses the connection ({answer.status}): too many are open")

    def misread(self, error: Exception) -> Refused:
        return Refused(f"the daemon speaks another version of spyweb ({error}): restart it")

    def cut_off(self, before: str) -> str:
        """Say why an answer broke off; otherwise a truncated answer would look complete."""
        try:
            with contextlib.closing(self.connection()) as connection:
                connection.connect()
        except OSError as error:
            if error.errno in NOBODY:
                return f"the daemon ended before {before}"
        return f"the daemon closed the connection before {before}"


class UrlTransport:
    """A daemon anywhere, by its URL.  Raises Refused for a URL that no daemon can have."""

    def __init__(self, url: str, key: str | None) -> None:
        self._url = url.rstrip("/")
        self._key = key
        try:
            parts = urlsplit(self._url)
            self._host, self._port = parts.hostname or "", parts.port
        except ValueError as error:
            raise Refused(f"{shortened(url)} is no URL: {error}") from error
        if parts.scheme not in ("http", "https") or not self._host:
            raise Refused(f"{shortened(url)} is no URL of a daemon: expected http://HOST:PORT or https://HOST")
        if parts.username is not None or parts.query or parts.fragment:
            raise Refused(f"{parts.scheme}://{self._host}: a URL has no user or query here; a key goes into {API_KEY}")
        if not (self._url + (key or "")).isprintable() or " " in self._url:
            raise Refused(f"the URL or {API_KEY} has a character in it that no header can hold")
        self._is_secure = parts.scheme == "https"
        self.prefix = parts.path
        self.headers: Mapping[str, str] = {KEY_HEADER: key} if key else {}

    def connection(self) -> http.client.HTTPConnection:
        if self._is_secure:
            context = ssl.create_default_context()
            return http.client.HTTPSConnection(self._host, self._port, timeout=PATIENCE, context=context)
        return http.client.HTTPConnection(self._host, self._port, timeout=PATIENCE)

    def is_from_a_daemon(self, answer: http.client.HTTPResponse) -> bool:
        return answer.headers.get_content_type() in JSON_MEDIA

    def refusal(self, error: OSError | http.client.HTTPException) -> Refused:
        match error:
            case ssl.SSLCertVerificationError():
                why = f"its certificate is not trusted: {error.verify_message}"
            case ssl.SSLError():
                why = f"TLS failed ({shortened(str(error.reason or error))}): does it speak plain http://?"
            case socket.gaierror():
                why = f"the host can't be resolved: {error.strerror}"
            case TimeoutError():
                why = f"has not answered for {PATIENCE:.0f} s"
            case ConnectionRefusedError():
                why = "nothing listens there"
            case http.client.BadStatusLine() if not isinstance(error, ConnectionError):
                why = NO_SPYWEB
            case ConnectionError() | http.client.HTTPException():
                hint = "" if self._is_secure else ": does it speak https://?"
                why = f"the connection was closed before the answer arrived{hint}"
            case _:
                why = f"can't be reached: {error.strerror or error}"
        return Refused(f"{self._url}: {why}")

    def refusal_of(self, answer: http.client.HTTPResponse, body: bytes) -> Refused:
        if answer.status == http.HTTPStatus.UNAUTHORIZED:
            why = f"does not accept the key in {API_KEY}" if self._key else f"needs a key: set {API_KEY}"
        elif 300 <= answer.status < 400:
            why = f"redirects to {shortened(answer.headers.get('Location', 'nowhere'))}"
        else:
            why = shortened(error_in(body)) or f"{NO_SPYWEB} (it answers {answer.status})"
        return Refused(f"{self._url}: {why}")

    def misread(self, error: Exception) -> Refused:
        return Refused(f"{self._url}: {NO_SPYWEB}, or another version of it ({error})")

    def cut_off(self, before: str) -> str:
        return f"{self._url}: the connection was closed before {before}"


Transport = SocketTransport | UrlTransport


def error_in(body: bytes) -> str:
    try:
        found = msgspec.json.decode(body, type=dict[str, object])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ""
    return str(found.get("error") or "")


def shortened(text: str) -> str:
    line = "".join(each if each.isprintable() else " " for each in text)
    return cut(line, LONGEST)


def find_daemon(data_dir: Path) -> DaemonClient | None:
    """Return a client of the daemon that listens there, or None.  Raises NoAccess when it is somebody else's."""
    path = data_dir / SOCKET
    try:
        with contextlib.closing(UnixConnection(path, PATIENCE)) as connection:
            connection.connect()
    except PermissionError as error:
        raise no_access(data_dir) or NoAccess(f"{data_dir}: {error.strerror}") from error
    except OSError as error:
        if error.errno in NOBODY:
            return None
        if isinstance(error, BlockingIOError):
            raise Refused(f"{data_dir}: {BUSY}") from error
        raise Refused(f"{data_dir}: its daemon can't be reached: {error.strerror or error}") from error
    return DaemonClient(SocketTransport(path))


class DaemonClient:
    """Asks a running daemon, here or elsewhere."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def is_ready(self) -> bool:
        try:
            self.ask("GET", "/readyz", dict[str, object])
        except Refused:
            return False
        return True

    def jobs(self) -> list[JobView]:
        return self.ask("GET", "/api/jobs", list[JobView])

    def ask(self, method: str, target: str, kind: type[T], *, body: Body = None, timeout: float | None = PATIENCE) -> T:
        with self._answer(method, target, timeout=timeout, body=body) as answer, self.translated_errors():
            return msgspec.json.decode(answer.read(), type=kind)

    def lines(
        self, target: str, *, method: str = "GET", body: Body = None, timeout: float | None = PATIENCE
    ) -> Iterator[bytes]:
        """Yield an answer line by line, a JSON object each.  Raises Refused at a line that is an error."""
        with self._answer(method, target, timeout=timeout, body=body) as answer:
            for line in self._lines(answer):
                if line.startswith(ERROR):
                    raise Refused(error_in(line))
                yield line

    def events(self, **parameters: str | int | None) -> Iterator[tuple[str, bytes]]:
        """Yield each event as its name and its JSON; the first pair is empty: from then on no event is missed."""
        target = with_query("/api/events", **parameters)
        with self._answer("GET", target, timeout=SILENT_S) as answer:
            name, data = "", b""
            for line in self._lines(answer):
                field, _, value = line.rstrip(b"\r\n").partition(b": ")
                if field == b"event":
                    name = value.decode()
                elif field == b"data":
                    data = value
                elif field == b"retry":
                    yield "", b""
                elif not field and name:
                    yield name, data
                    name = ""

    @contextlib.contextmanager
    def _answer(
        self, method: str, target: str, *, timeout: float | None, body: Body = None
    ) -> Iterator[http.client.HTTPResponse]:
        with contextlib.closing(self._transport.connection()) as connection:
            with self.translated_errors():
                connection.connect()
                connection.sock.settimeout(timeout)
                with contextlib.suppress(ConnectionError):  # a body that is too large is refused early
                    connection.request(method, self._transport.prefix + target, body, dict(self._transport.headers))
                answer = connection.getresponse()
                if answer.status != 200 or not self._transport.is_from_a_daemon(answer):
                    raise self._transport.refusal_of(answer, answer.read(1 << 16))
            yield answer

    def _lines(self, answer: http.client.HTTPResponse) -> Iterator[bytes]:
        """Yield the lines from a generator, so that an error of the caller is not reported as one of the daemon."""
        with self.translated_errors():
            yield from answer

    @contextlib.contextmanager
    def translated_errors(self) -> Iterator[None]:
        """Turn an error of a request, or of decoding its answer, into a Refused with one line."""
        try:
            yield
        except (OSError, http.client.HTTPException) as error:
            raise self._transport.refusal(error) from error
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise self._transport.misread(error) from error

    def cut_off(self, before: str) -> str:
        return self._transport.cut_off(before)


def of_job(job: JobId, what: str) -> str:
    return f"/api/jobs/{quote(job, safe='')}/{what}"


def with_query(path: str, **parameters: bytes | str | int | None) -> str:
    return f"{path}?{urlencode({name: value for name, value in parameters.items() if value is not None})}"
