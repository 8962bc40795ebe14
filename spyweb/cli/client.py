"""A client of the daemon for the commands: blocking HTTP, on the standard library alone."""

from __future__ import annotations

import contextlib
import http.client
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote, urlencode

import msgspec

from spyweb.cli.transport import BUSY, NOBODY, PATIENCE, SocketTransport, Transport, UnixConnection, error_in
from spyweb.errors import NoAccess, Refused
from spyweb.model import JobId
from spyweb.settings.socket_path import find_socket
from spyweb.store.access import no_access
from spyweb.views.jobs import JobView

LARGEST_ERROR = 1 << 16  # bytes
SILENT_S = 60.0  # that a stream of events, which gives signs of life, may be silent
ERROR = b'{"error":'  # beginning of a line that reports an error

T = TypeVar("T")
Body = bytes | Iterable[bytes] | None


def find_daemon(data_dir: Path) -> DaemonClient | None:
    """Return a client of the daemon that listens there, or None.  Raises NoAccess when it is somebody else's."""
    try:
        path = find_socket(data_dir)
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
        """Send one request, and return its answer decoded as this type."""
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
        """Yield each event with its name and its JSON, and first, with neither, that from now on nothing is missed."""
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
                with contextlib.suppress(
                    ConnectionError
                ):  # what is too large is answered before all of it has been sent
                    connection.request(method, self._transport.prefix + target, body, dict(self._transport.headers))
                answer = connection.getresponse()
                if answer.status != 200 or not self._transport.is_from_a_daemon(answer):
                    headers = dict(answer.headers.items())
                    raise self._transport.refusal_of(answer.status, headers, answer.read(LARGEST_ERROR))
            yield answer

    def _lines(self, answer: http.client.HTTPResponse) -> Iterator[bytes]:
        """Yield the lines in a generator, so that an error of its caller is not taken for one of the daemon."""
        with self.translated_errors():
            yield from answer

    @contextlib.contextmanager
    def translated_errors(self) -> Iterator[None]:
        """Say in one line what went wrong where a daemon is asked, or its answer is decoded."""
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
