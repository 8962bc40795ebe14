"""Build the messages of monitors, and make one attempt to deliver a message.

A message is a webhook's POST, a desktop notification, an alert, or a ping: a ping informs a watcher elsewhere, such as
Healthchecks, that a run has begun or ended.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import TypeAlias
from urllib.parse import quote, urlsplit

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from spyweb.clock import Clock
from spyweb.errors import FetchError, NotPermitted
from spyweb.logs.job import NAME
from spyweb.logs.reading import lines_between
from spyweb.logs.secrets import Secrets
from spyweb.model import JobId, JobSpec, PingAddresses, Webhook
from spyweb.ops.network.address_check import NetGate
from spyweb.ops.network.request import Fetch, Http, Response, check, clean_headers, parse_url
from spyweb.ops.notify_desktop import Desktop
from spyweb.outbox.redaction import HIDDEN, hide_webhook
from spyweb.permissions.policy import Policy
from spyweb.runs.records import START, SUCCESS, PingFacts, decode_ping
from spyweb.settings.addresses import expand, read_secret
from spyweb.specs.parse import OF_JOB
from spyweb.store.model.messages import Channel, NewMessage, QueuedMessage, Target

DELIVERY_HEADER = "X-SpyWeb-Delivery"
SIGNATURE_HEADER = "X-SpyWeb-Signature"
OUR_HEADERS = (DELIVERY_HEADER.lower(), SIGNATURE_HEADER.lower())
TIMEOUT_S = 30.0
NOT_FINAL = (408, 425, 429)  # answers of 4xx after which the same message may be accepted later
SHOWN = 200  # characters of what the receiver answered
LONGEST_LOG = 10_000  # bytes: its end
TEXT = (("content-type", "text/plain; charset=utf-8"),)
LONGEST_DIGITS = 9  # of the seconds in Retry-After: more than any message lives


class DeliveryFailure(Struct, frozen=True, kw_only=True):
    """The reason why a message was not delivered."""

    reason: str
    holds: bool = True  # the target failed, not this message: the messages behind it wait
    is_refused: bool = False  # the receiver rejects this message: it is given up after a few more tries
    wait_ms: int = 0  # at least so long, as the receiver asks


Send: TypeAlias = Callable[[QueuedMessage], Awaitable[DeliveryFailure | None]]


@dataclass(kw_only=True, eq=False)
class MessageTransport:
    """Makes one attempt to send a message: to a webhook, on the desktop, to a notification channel, or to a watcher."""

    http: Http
    desktop: Desktop
    clock: Clock
    spec_of: Callable[[JobId], JobSpec | None]  # the current settings, also for messages that were stored before
    usual: Policy  # of a removed job
    environ: Mapping[str, str]
    secrets: Secrets
    root: Path
    flush_logs: Callable[[], Awaitable[None]]
    alert: Send  # sends the messages to notification channels

    async def send(self, message: QueuedMessage) -> DeliveryFailure | None:
        """Send a message, if the policy of its job still permits that: it may have changed since."""
        match message.target.channel:
            case Channel.WEBHOOK:
                return await self._post(message)
            case Channel.DESKTOP:
                return await self._show(message)
            case Channel.ALERT:
                return await self.alert(message)
            case Channel.PING:
                return await self._ping(message)

    async def _post(self, message: QueuedMessage) -> DeliveryFailure | None:
        spec = self.spec_of(message.job)
        webhook = spec.monitor.webhook if spec and spec.monitor else None
        place = webhook.secret if webhook else ""
        secret = read_secret(place, self.environ) if place else b""
        if place and not secret:
            return DeliveryFailure(reason=f"the secret {place} is not there")
        gate = NetGate(spec.policy if spec else self.usual, message.job, "webhook")
        return await post(self.http, self.clock, message, gate, secret)

    async def _show(self, message: QueuedMessage) -> DeliveryFailure | None:
        spec = self.spec_of(message.job)
        if refusal := (spec.policy if spec else self.usual).notify():
            return DeliveryFailure(reason=refusal.text("notification", message.job), holds=False)
        text = msgspec.json.decode(message.payload, type=DesktopText)
        reason = await self.desktop.show(text.title, text.body, text.timeout_ms)
        return DeliveryFailure(reason=reason) if reason else None

    async def _ping(self, message: QueuedMessage) -> DeliveryFailure | None:
        """Ping a watcher at its current address; without one there is nothing to send."""
        spec, facts = self.spec_of(message.job), decode_ping(message.payload)
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
            message, target=Target(Channel.WEBHOOK, address), payload=await self._log(spec, facts), headers=TEXT
        )
        failure = await post(self.http, self.clock, posted, gate)
        return failure and replace(failure, reason=hide_webhook(failure.reason, address))

    def _address(self, job: JobId, ping: PingAddresses, facts: PingFacts) -> str:
        """Return the address of a ping, empty if it has none.  Raises ValueError, without the address in its text."""
        template = ping.base or {START: ping.start, SUCCESS: ping.success}.get(facts.kind, ping.fail)
        if not template:
            return ""
        template = template.replace(OF_JOB, quote(job, safe=""))
        address = template if ping.is_own else expand(template, self.environ)
        if not ping.base:
            return address
        try:
            url = parse_url(address.encode())
        except FetchError as error:
            raise ValueError(hide_webhook(str(error), address)) from None
        path = url.raw_path if facts.kind == SUCCESS else f"{url.raw_path.rstrip('/')}/{facts.kind}"
        return str(url.with_path(path, encoded=True, keep_query=True).update_query(rid=facts.rid))

    async def _log(self, spec: JobSpec, facts: PingFacts) -> bytes:
        """Return the end of the run's log, and why it has failed."""
        if facts.started_ms is None or facts.ended_ms is None:
            return facts.reason.encode()
        await self.flush_logs()
        path = self.root / spec.folder / NAME
        found = await asyncio.to_thread(lines_between, path, facts.started_ms, facts.ended_ms, LONGEST_LOG)
        lines = [*found.lines, *([facts.reason] if facts.reason else [])]
        text = "\n".join(self.secrets.hide_in_prose(line) for line in lines)
        return text.encode("utf-8", "replace")[-LONGEST_LOG:]


async def post(
    http: Http, clock: Clock, message: QueuedMessage, gate: NetGate | None = None, secret: bytes = b""
) -> DeliveryFailure | None:
    """Make one attempt to post a message to its address, signed where there is a secret."""
    try:
        headers = headers_of(message)
        if secret:
            headers[SIGNATURE_HEADER] = signature_of(message, secret, clock.now_ms() // 1000)
        fetch = Fetch(
            url=parse_url(message.target.address.encode("utf-8", "replace")),
            method="POST",
            headers=headers,
            body=message.payload,
            timeout_s=TIMEOUT_S,
            largest=4 * SHOWN,
            whole=False,  # the status decides; the rest of the answer may fail
            gate=gate,
            follow=False,  # a redirected POST becomes a GET, and is not delivered
        )
        check(fetch)
    except FetchError as error:  # another attempt would fail too, but the message is kept and listed
        return DeliveryFailure(reason=str(error), holds=False)
    try:
        response = await http.fetch(fetch)
    except FetchError as error:
        return DeliveryFailure(reason=f"{error.kind}: {error}", holds=not isinstance(error, NotPermitted))
    if secret:  # which the receiver may repeat
        response = replace(response, body=response.body.replace(secret, HIDDEN.encode()))
    return judge(response, clock.now_ms())


def headers_of(message: QueuedMessage) -> dict[str, str]:
    given = {name.encode(): value.encode() for name, value in message.headers}
    cleaned = {name: value for name, value in clean_headers(given).items() if name.lower() not in OUR_HEADERS}
    has_type = any(name.lower() == "content-type" for name in cleaned)
    kind = {} if has_type else {"Content-Type": "application/json"}
    return {**kind, **cleaned, DELIVERY_HEADER: message.delivery}


def signature_of(message: QueuedMessage, secret: bytes, at_s: int) -> str:
    """Return the header by which the receiver verifies the sender and the time of a message."""
    content = b"%d.%s.%s" % (at_s, message.delivery.encode(), message.payload)
    return f"t={at_s},v1={hmac.new(secret, content, 'sha256').hexdigest()}"


def judge(response: Response, now_ms: int) -> DeliveryFailure | None:
    """Return why the answer means that a message was not delivered; None with 2xx."""
    if 200 <= response.status < 300:
        return None
    is_refused = is_final(response.status)
    answered = " ".join(response.body.decode("utf-8", "replace").split())[:SHOWN]
    return DeliveryFailure(
        reason=f"answered {response.status}{f': {answered}' if answered else ''}",
        holds=not is_refused,
        is_refused=is_refused,
        wait_ms=retry_after_ms(response.headers, now_ms),
    )


def is_final(status: int) -> bool:
    """Return whether the receiver would reject the same message later too, unless something is fixed."""
    return 300 <= status < 500 and status not in NOT_FINAL


def retry_after_ms(headers: Mapping[bytes, bytes], now_ms: int) -> int:
    """Return how long the receiver asks to wait: Retry-After has seconds, or a date."""
    text = headers.get(b"retry-after", b"").decode("ascii", "replace").strip()
    if text.isascii() and text.isdigit():
        return int(text[:LONGEST_DIGITS]) * 1000
    try:
        return max(0, round(parsedate_to_datetime(text).timestamp() * 1000) - now_ms)
    except (ValueError, OverflowError):
        return 0


class DesktopText(msgspec.Struct, frozen=True):
    """The payload of a desktop notification."""

    title: str
    body: str
    timeout_ms: int | None = None


def webhook_message(job: JobId, webhook: Webhook, body: bytes) -> NewMessage:
    target = Target(Channel.WEBHOOK, webhook.url)
    return NewMessage(job=job, target=target, payload=body, headers=webhook.headers)


def desktop_message(job: JobId, title: str, body: str, timeout_ms: int | None, node: str = "") -> NewMessage:
    """Make the message that is shown on the desktop of this node; "" is a daemon that is alone."""
    payload = msgspec.json.encode(DesktopText(title, body, timeout_ms))
    return NewMessage(job=job, target=Target(Channel.DESKTOP, node), payload=payload)


def place_of(target: Target) -> str:
    """Return the host of a target, or the name of a notification channel, for logs.

    The rest of a webhook's address is often a secret.
    """
    if target.channel is Channel.ALERT:
        return target.address
    try:
        return urlsplit(target.address).hostname or target.channel.value
    except ValueError:
        return target.channel.value
