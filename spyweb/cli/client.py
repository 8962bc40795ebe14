"""A client of the daemon for the commands: blocking HTTP, on the standard library alone."""

from __future__ import annotations

import contextlib
import http.client
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from spyweb.cli.transport import BUSY, NOBODY, PATIENCE, SocketTransport, Transport, UnixConnection, error_in
from spyweb.errors import NoAccess, Problem, Refused
from spyweb.model import JobId, Run, RunId
from spyweb.store.access import no_access
from spyweb.store.model.access import AuditLine, Scope
from spyweb.views.channels import ChannelTried, ChannelView
from spyweb.views.drift import DriftReport
from spyweb.views.incidents import IncidentAcked, IncidentView, JobSilenced
from spyweb.views.jobs import JobView, NextRun
from spyweb.views.keys import KeyRevoked, KeyView, MadeKey
from spyweb.views.outbox import MessageView
from spyweb.views.records import RecordsPage, RecordView
from spyweb.views.runs import RunEnded, RunEvent, TaskView, event_from_json
from spyweb.views.workflows import WorkflowDetail, WorkflowView
from spyweb.web.address import find_socket

if TYPE_CHECKING:
    from spyweb.views.health import Health

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

    def warnings(self) -> list[Problem]:
        return self.ask("GET", "/api/warnings", list[Problem])

    def next_runs(self, job: JobId | None, count: int) -> list[NextRun]:
        return self.ask("GET", _with_query("/api/next", job=job, count=count), list[NextRun])

    def runs(self, job: JobId | None, *, limit: int, before: RunId | None) -> list[Run]:
        return self.ask("GET", _with_query("/api/runs", job=job, limit=limit, before=before), list[Run])

    def tasks(self, run: RunId) -> list[TaskView]:
        return self.ask("GET", f"/api/runs/{run}/tasks", list[TaskView])

    def records(self, job: JobId, *, limit: int, before_ns: int | None) -> list[RecordView]:
        return self.ask(
            "GET", _with_query("/api/records", job_id=job, limit=limit, after=before_ns), RecordsPage
        ).records

    def messages(self, job: JobId | None, *, limit: int) -> list[MessageView]:
        return self.ask("GET", _with_query("/api/outbox", job=job, limit=limit), list[MessageView])

    def retry_messages(self, message: int | None) -> list[int]:
        return self.ask("POST", _with_query("/api/outbox/retry", id=message), dict[str, list[int]])["retried"]

    def keys(self) -> list[KeyView]:
        return self.ask("GET", "/api/keys", list[KeyView])

    def add_key(self, name: str, scopes: Sequence[Scope], jobs: Sequence[str]) -> MadeKey:
        body = msgspec.json.encode({"name": name, "scopes": scopes, "jobs": jobs})
        return self.ask("POST", "/api/keys", MadeKey, body=body)

    def revoke_key(self, name: str) -> bool:
        return self.ask("DELETE", f"/api/keys/{quote(name, safe='')}", KeyRevoked).revoked

    def audit_lines(self, *, limit: int) -> list[AuditLine]:
        return self.ask("GET", _with_query("/api/audit", limit=limit), list[AuditLine])

    def incidents(
        self, *, is_open: bool | None, limit: int, job: JobId | None = None, since_ms: int | None = None
    ) -> list[IncidentView]:
        state = None if is_open is None else "open" if is_open else "closed"
        path = _with_query("/api/incidents", state=state, job=job, since=since_ms, limit=limit)
        return self.ask("GET", path, list[IncidentView])

    def channels(self) -> list[ChannelView]:
        return self.ask("GET", "/api/channels", list[ChannelView])

    def incident(self, number: int) -> IncidentView:
        return self.ask("GET", f"/api/incidents/{number}", IncidentView)

    def ack_incident(self, number: int, by: str) -> str:
        """Acknowledge an incident; return by whom it is, as the daemon says."""
        return self.ask("POST", _with_query(f"/api/incidents/{number}/ack", by=by), IncidentAcked).by or by

    def try_channel(self, channel: str) -> ChannelTried:
        return self.ask("POST", f"/api/channels/{quote(channel, safe='')}/test", ChannelTried)

    def silence(self, job: JobId, for_ms: int | None, by: str) -> None:
        path = _with_query(_of_job(job, "silence"), by=by)
        if for_ms is None:
            self.ask("DELETE", path, JobSilenced)
        else:
            self.ask("POST", path, JobSilenced, body=msgspec.json.encode({"for": f"{for_ms}ms"}))

    def workflows(self, limit: int) -> list[WorkflowView]:
        return self.ask("GET", _with_query("/api/workflows", limit=limit), list[WorkflowView])

    def workflow(self, which: str) -> WorkflowDetail:
        return self.ask("GET", _with_query("/api/workflow", id=which), WorkflowDetail)

    def drift(self, job: JobId | None) -> DriftReport:
        return self.ask("GET", _with_query("/api/drift", job=job), DriftReport, timeout=None)

    def health(self) -> Health:
        from spyweb.views.health import Health

        return self.ask("GET", "/api/health", Health)

    def trigger(self, job: JobId) -> RunId | None:
        return self.ask("POST", _of_job(job, "trigger"), dict[str, RunId | None])["run"]

    def log_lines(self, job: JobId, count: int) -> list[str]:
        return self.ask("GET", _with_query(_of_job(job, "logs"), lines=count), list[str])

    def pause(self, job: JobId) -> None:
        self.ask("POST", _of_job(job, "pause"), dict[str, object])

    def resume(self, job: JobId) -> None:
        self.ask("POST", _of_job(job, "resume"), dict[str, object])

    def run_once(
        self,
        job: JobId,
        watch: Callable[[RunEvent], None],
        *,
        debug: bool = False,
        audit: bool = False,
        dry_run: bool = False,
        values: Mapping[str, object] | None = None,
    ) -> RunEnded:
        """Run a job by hand; call `watch` with each log line as it comes, then with the run's end."""
        asked = "&".join(
            name for name, is_set in (("debug=1", debug), ("audit=1", audit), ("dry_run=1", dry_run)) if is_set
        )
        target = _of_job(job, "run")
        body = msgspec.json.encode(values) if values else None
        with self._answer("POST", f"{target}?{asked}" if asked else target, timeout=None, body=body) as answer:
            for event in map(self._event, self._lines(answer)):
                watch(event)
                if isinstance(event, RunEnded):
                    return event
        raise Refused(f"{self.cut_off('the run had ended')}: `spyweb runs` tells what became of it")

    def ask(self, method: str, target: str, kind: type[T], *, body: Body = None, timeout: float | None = PATIENCE) -> T:
        """Send one request, and return its answer decoded as this type."""
        with self._answer(method, target, timeout=timeout, body=body) as answer, self._translated_errors():
            return msgspec.json.decode(answer.read(), type=kind)

    def lines(self, target: str, *, timeout: float | None = PATIENCE) -> Iterator[bytes]:
        """Yield an answer line by line, a JSON object each.  Raises Refused at a line that is an error."""
        with self._answer("GET", target, timeout=timeout) as answer:
            for line in self._lines(answer):
                if line.startswith(ERROR):
                    raise Refused(error_in(line))
                yield line

    def events(self, **parameters: str | int | None) -> Iterator[tuple[str, bytes]]:
        """Yield each event with its name and its JSON, and first, with neither, that from now on nothing is missed."""
        target = _with_query("/api/events", **parameters)
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
            with self._translated_errors():
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
        with self._translated_errors():
            yield from answer

    @contextlib.contextmanager
    def _translated_errors(self) -> Iterator[None]:
        try:
            yield
        except (OSError, http.client.HTTPException) as error:
            raise self._transport.refusal(error) from error
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise self._transport.misread(error) from error

    def _event(self, line: bytes) -> RunEvent:
        with self._translated_errors():
            fields = msgspec.json.decode(line, type=dict[str, object])
            if fields.get("event") == "error":
                raise Refused(str(fields.get("error")))
            return event_from_json(line)

    def cut_off(self, before: str) -> str:
        return self._transport.cut_off(before)


def _of_job(job: JobId, what: str) -> str:
    return f"/api/jobs/{quote(job, safe='')}/{what}"


def _with_query(path: str, **parameters: str | int | None) -> str:
    return f"{path}?{urlencode({name: value for name, value in parameters.items() if value is not None})}"
