"""A service of hooks over jobs on a fake clock, and requests as GitHub and Stripe sign them."""

from __future__ import annotations

from collections.abc import Mapping

from multidict import CIMultiDict

from spyweb.model import HookSigning, JobHook
from spyweb.runs.pings import PingRuns
from spyweb.subjects.hooks.service import SECRET_HEADER, Delivery, HookService, sign
from spyweb.subjects.runs.service import OnceService
from tests.fakes.harness import Harness

SECRET = "It's a Secret to Everybody"
ENVIRON = {"HOOK": SECRET}
NO_HEADERS: Mapping[str, str] = {}


def make_hooks(t: Harness, once: OnceService | None = None, environ: Mapping[str, str] = ENVIRON) -> HookService:
    once = once or OnceService(t.store.runs, t.clock)
    pings = make_pings(t)
    return HookService(live=t.live, runner=t.runner, pings=pings, once=once, clock=t.clock, environ=environ)


def make_pings(t: Harness, lines: list[str] | None = None) -> PingRuns:
    def write_line(folder: str, level: str, text: str, run: int) -> None:
        if lines is not None:
            lines.append(f"{folder} {run} {level} {text}")

    return PingRuns(runner=t.runner, live=t.live, write_line=write_line, clock=t.clock)


def hook(signing: HookSigning = HookSigning.PLAIN, *headers: str) -> JobHook:
    return JobHook(secret="env:HOOK", signing=signing, headers=headers)


def signed(signing: HookSigning, body: bytes, now_s: float, secret: str = SECRET) -> CIMultiDict[str]:
    """Return the headers with which a sender shows that it knows the secret."""
    match signing:
        case HookSigning.PLAIN:
            return CIMultiDict({SECRET_HEADER: secret})
        case HookSigning.GITHUB:
            return CIMultiDict({"x-hub-signature-256": f"sha256={sign(secret.encode(), body)}"})
        case HookSigning.STRIPE:
            return CIMultiDict({"Stripe-Signature": stamped(secret.encode(), body, int(now_s))})
        case HookSigning.SPYWEB:
            return CIMultiDict({"X-SpyWeb-Signature": stamped(secret.encode(), body, int(now_s))})


def delivery(
    body: bytes = b"{}", payload: object = None, *, key: str | None = None, headers: Mapping[str, str] = NO_HEADERS
) -> Delivery:
    return Delivery(body=body, payload=payload, headers=headers, query={}, key=key)


def stamped(secret: bytes, body: bytes, at_s: int) -> str:
    """Return the header of a request that is sent at this time, in Stripe's form."""
    return f"t={at_s},v1={sign(secret, b'%d.%b' % (at_s, body))}"
