"""Tell a watcher elsewhere, such as Healthchecks, of a job's runs: that one has begun, and how it has ended."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from urllib.parse import quote

from msgspec.structs import replace
from yarl import URL

from spyweb.clock import Clock
from spyweb.errors import FetchError
from spyweb.logs.job import NAME
from spyweb.logs.reading import lines_between
from spyweb.logs.secrets import secrets_in
from spyweb.model import JobId, JobSpec, PingAddresses
from spyweb.ops.network.address_check import NetGate
from spyweb.ops.network.request import Http, parse_url
from spyweb.outbox.send import DeliveryFailure, hide_address, post
from spyweb.runs.records import START, SUCCESS, PingFacts, decode_ping
from spyweb.settings.addresses import expand
from spyweb.specs.parse import OF_JOB
from spyweb.store.model.messages import Channel, QueuedMessage, Target

LONGEST_LOG = 10_000  # bytes: its end
TEXT = (("content-type", "text/plain; charset=utf-8"),)


class PingSender:
    def __init__(
        self,
        *,
        http: Http,
        clock: Clock,
        spec_of: Callable[[JobId], JobSpec | None],
        root: Path,
        flush_logs: Callable[[], Awaitable[None]],
        environ: Mapping[str, str],
    ) -> None:
        self._http = http
        self._clock = clock
        self._spec_of = spec_of
        self._root = root
        self._flush_logs = flush_logs
        self._environ = environ
        self._secrets = secrets_in(environ)

    async def send(self, message: QueuedMessage) -> DeliveryFailure | None:
        """Make one attempt, to the address as it is now; where there is none any more nobody is told."""
        spec, facts = self._spec_of(message.job), decode_ping(message.payload)
        if spec is None or spec.ping is None:
            return None
        try:
            address = self._address(spec.id, spec.ping, facts)
        except ValueError as error:
            return DeliveryFailure(reason=str(error))
        if not address:
            return None
        gate = NetGate(spec.policy, spec.id, "ping_url") if spec.ping.is_own else None
        posted = replace(
            message,
            target=Target(Channel.WEBHOOK, address),
            payload=await self._log(spec, facts),
            headers=TEXT,
        )
        failure = await post(self._http, self._clock, posted, gate)
        return failure and replace(failure, reason=hide_address(failure.reason, address))

    def _address(self, job: JobId, ping: PingAddresses, facts: PingFacts) -> str:
        """Return where this is told; empty: nowhere.  Raises ValueError, which tells nothing of the address."""
        template = ping.base or {START: ping.start, SUCCESS: ping.success}.get(facts.kind, ping.fail)
        if not template:
            return ""
        template = template.replace(OF_JOB, quote(job, safe=""))
        address = template if ping.is_own else expand(template, self._environ)
        if not ping.base:
            return address
        try:
            url = parse_url(address.encode())
        except FetchError as error:
            raise ValueError(hide_address(str(error), address)) from None
        return str(told_at(url, "" if facts.kind == SUCCESS else facts.kind).update_query(rid=facts.rid))

    async def _log(self, spec: JobSpec, facts: PingFacts) -> bytes:
        """Return the end of the run's log, and why it has failed."""
        if facts.started_ms is None or facts.ended_ms is None:
            return facts.reason.encode()
        await self._flush_logs()
        path = self._root / spec.folder / NAME
        found = await asyncio.to_thread(lines_between, path, facts.started_ms, facts.ended_ms, LONGEST_LOG)
        lines = [*found.lines, *([facts.reason] if facts.reason else [])]
        text = "\n".join(self._secrets.hide_in_prose(line) for line in lines)
        return text.encode("utf-8", "replace")[-LONGEST_LOG:]


def told_at(url: URL, what: str) -> URL:
    """Return an address with something behind its path, before its query."""
    path = f"{url.raw_path.rstrip('/')}/{what}" if what else url.raw_path
    return url.with_path(path, encoded=True, keep_query=True)
