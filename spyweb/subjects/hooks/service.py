"""Start jobs by requests of other programs: which requests a job's hook accepts, and what its script sees of them."""

from __future__ import annotations

import hmac
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

import structlog
from msgspec import Struct
from msgspec.structs import replace

from spyweb.clock import Clock
from spyweb.errors import Refused
from spyweb.limits import SCRIPT_VALUES
from spyweb.model import NO_HOOK, HookSigning, JobHook, JobId, Pings, RunId, Trigger, TriggerType
from spyweb.outbox.send import DELIVERY_HEADER, SIGNATURE_HEADER
from spyweb.runs.live import LiveJobs
from spyweb.runs.pings import Ping, PingRuns
from spyweb.runs.runner import Runner, RunRequest
from spyweb.settings.addresses import read_secret
from spyweb.subjects.runs.service import OnceService, StartedRun, request_key
from spyweb.views.jobs import to_json

log = structlog.get_logger()

GITHUB_DELIVERY = "X-GitHub-Delivery"
NOBODYS = JobHook(secret="env:NOBODYS", signing=HookSigning.GITHUB)  # for a job that does not exist


class Delivery(Struct, frozen=True, kw_only=True):
    """One request to a hook."""

    body: bytes
    payload: object  # the body: JSON, or its text
    headers: Mapping[str, str]  # looked up in any case
    query: Mapping[str, str]
    key: str | None = None  # the Idempotency-Key
    parent: str = ""  # the trace to which it belongs


@dataclass(slots=True, kw_only=True)
class HookService:
    live: LiveJobs
    runner: Runner
    pings: PingRuns
    once: OnceService
    clock: Clock
    environ: Mapping[str, str]
    _nobodys: bytes = field(default_factory=partial(secrets.token_bytes, 32))
    _missed: set[str] = field(default_factory=set)  # secrets that were not found, each logged once

    def needs_signature(self, job: JobId | None) -> bool:
        """Return whether the hook of a job has a secret: then being on this machine is not enough."""
        return bool(self._hook_of(job).secret)

    def is_signed(self, job: JobId | None, headers: Mapping[str, str], body: bytes) -> bool:
        """Return whether a request knows the secret of a job's hook; takes as long where the job does not exist."""
        hook = self._hook_of(job)
        if not hook.secret:
            hook = NOBODYS
        secret = None
        if hook is not NOBODYS:
            secret = read_secret(hook.secret, self.environ) or None
            if secret is None and hook.secret not in self._missed:
                self._missed.add(hook.secret)
                log.warning("the secret of a hook is missing: its requests are refused", secret=hook.secret)
        signed = is_signed(hook.signing, secret or self._nobodys, headers, body, self.clock.now_ms() / 1000)
        return signed and secret is not None

    async def receive(self, job: JobId, delivery: Delivery) -> StartedRun:
        """Start a run for an admitted request.  Raises Refused where the job can't run, and as OnceService does."""
        live = self.live.find(job)
        if live is None:
            raise Refused(f"{job} no longer exists")
        if not live.spec.enabled:
            raise Refused(f"{job} is disabled")
        if live.cursor.paused:
            raise Refused(f"{job} is paused")
        key, given = None, delivery.key
        if live.spec.hook.signing is HookSigning.GITHUB and delivery.headers.get(GITHUB_DELIVERY):
            # GitHub's own id of an event: its signature never expires, so each event is accepted once.
            given = f"github {delivery.headers[GITHUB_DELIVERY]}"
        if given is not None:
            asked = to_json(sorted(delivery.query.items())) + delivery.body
            key = request_key(f"hook {job}", given, asked, self.clock.now_ms())
        request = request_of(live.spec.hook, delivery)
        return await self.once.start(key, lambda key: self.runner.start_by_hand(live, replace(request, key=key)))

    def expects_pings(self, job: JobId) -> bool:
        """Return whether a request to the hook of a job is a ping, which reports a run elsewhere."""
        live = self.live.find(job)
        return live is not None and isinstance(live.spec.schedule, Pings)

    async def hear(self, job: JobId, ping: Ping) -> RunId:
        """Record a ping; return its run.  Raises Refused where the job expects none."""
        live = self.live.find(job)
        if live is None or not self.expects_pings(job):
            raise Refused(f"{job} no longer exists")
        return await self.pings.hear(live, ping)

    def _hook_of(self, job: JobId | None) -> JobHook:
        live = None if job is None else self.live.find(job)
        return NO_HOOK if live is None else live.spec.hook


def request_of(hook: JobHook, delivery: Delivery) -> RunRequest:
    """Return the request for a run whose script sees the delivery; a large payload is kept apart from the trigger."""
    trigger = Trigger(
        type=TriggerType.WEBHOOK,
        headers={name: delivery.headers[name] for name in hook.headers if name in delivery.headers},
        query=dict(delivery.query),
        traceparent=delivery.parent,
    )
    if delivery.payload is None:
        return RunRequest(trigger=trigger)
    content = to_json(delivery.payload)
    if len(content) <= SCRIPT_VALUES:
        return RunRequest(trigger=replace(trigger, payload=delivery.payload))
    return RunRequest(trigger=replace(trigger, payload_stored=True), payload=content)


SECRET_HEADER = "X-SpyWeb-Hook-Secret"
TOLERANCE_S = 300  # an older signature may have been overheard
MOST_SIGNATURES = 16  # in one header: Stripe sends two while a secret is rotated

_DELIVERY = re.compile(r"[0-9a-f]{32}")  # of a fixed length, so that no part of a body can pass for it


def is_signed(signing: HookSigning, secret: bytes, headers: Mapping[str, str], body: bytes, now_s: float) -> bool:
    """Return whether a request has the secret, or an HMAC-SHA256 by it; `headers` are looked up in any case."""
    match signing:
        case HookSigning.PLAIN:
            return hmac.compare_digest(_bytes(headers.get(SECRET_HEADER, "")), secret)
        case HookSigning.GITHUB:
            given = headers.get("X-Hub-Signature-256", "")
            return hmac.compare_digest(_bytes(given), f"sha256={sign(secret, body)}".encode())
        case HookSigning.STRIPE:
            return _is_stamped(headers.get("Stripe-Signature", ""), secret, body, now_s)
        case HookSigning.SPYWEB:
            # A webhook of spyweb names its delivery, and signs that too.
            delivery = headers.get(DELIVERY_HEADER, "")
            sent = b"%b.%b" % (delivery.encode(), body) if _DELIVERY.fullmatch(delivery) else body
            return _is_stamped(headers.get(SIGNATURE_HEADER, ""), secret, sent, now_s)


def sign(secret: bytes, content: bytes) -> str:
    return hmac.new(secret, content, "sha256").hexdigest()


def _is_stamped(header: str, secret: bytes, body: bytes, now_s: float) -> bool:
    parts = [part.strip().partition("=") for part in header.split(",", MOST_SIGNATURES)[:MOST_SIGNATURES]]
    stamp = next((value for name, _, value in parts if name == "t"), "")
    expected = sign(secret, _bytes(stamp) + b"." + body).encode()
    found = [hmac.compare_digest(_bytes(value), expected) for name, _, value in parts if name == "v1"]
    is_number = stamp.isascii() and stamp.isdigit() and len(stamp) < 16
    return any(found) and is_number and abs(now_s - int(stamp)) <= TOLERANCE_S


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
