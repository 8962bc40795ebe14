"""Tell whether the sender of a request to a job's hook knows its secret.  Pure; takes as long for a wrong one."""

from __future__ import annotations

import hmac
import re
from collections.abc import Iterator, Mapping

from spyweb.model import HookSigning
from spyweb.outbox.send import DELIVERY_HEADER, SIGNATURE_HEADER

SECRET_HEADER = "X-SpyWeb-Hook-Secret"
GITHUB_HEADER = "X-Hub-Signature-256"
STRIPE_HEADER = "Stripe-Signature"
TOLERANCE_S = 300  # an older signature may have been overheard
MOST_SIGNATURES = 16  # in one header: Stripe sends two while a secret is exchanged

_DELIVERY = re.compile(r"[0-9a-f]{32}")  # of one length, so that no part of a body passes for one


def is_signed(signing: HookSigning, secret: bytes, headers: Mapping[str, str], body: bytes, now_s: float) -> bool:
    """Return whether a request has the secret, or an HMAC-SHA256 by it; `headers` are looked up in any case."""
    match signing:
        case HookSigning.PLAIN:
            return hmac.compare_digest(_bytes(headers.get(SECRET_HEADER, "")), secret)
        case HookSigning.GITHUB:
            given = headers.get(GITHUB_HEADER, "")
            return hmac.compare_digest(_bytes(given), f"sha256={sign(secret, body)}".encode())
        case HookSigning.STRIPE:
            return _is_stamped(headers.get(STRIPE_HEADER, ""), secret, body, now_s)
        case HookSigning.SPYWEB:
            return _is_stamped(headers.get(SIGNATURE_HEADER, ""), secret, _delivered(headers, body), now_s)


def sign(secret: bytes, content: bytes) -> str:
    return hmac.new(secret, content, "sha256").hexdigest()


def stamped(secret: bytes, body: bytes, at_s: int) -> str:
    """Return the header of a request that is sent at this time, in Stripe's form."""
    return f"t={at_s},v1={sign(secret, b'%d.%b' % (at_s, body))}"


def _delivered(headers: Mapping[str, str], body: bytes) -> bytes:
    """Return what the sender has signed: a webhook of spyweb says which delivery it is, and signs that too."""
    delivery = headers.get(DELIVERY_HEADER, "")
    return b"%b.%b" % (delivery.encode(), body) if _DELIVERY.fullmatch(delivery) else body


def _is_stamped(header: str, secret: bytes, body: bytes, now_s: float) -> bool:
    parts = list(_parts(header))
    stamp = next((value for name, value in parts if name == "t"), "")
    expected = sign(secret, _bytes(stamp) + b"." + body).encode()
    found = [hmac.compare_digest(_bytes(value), expected) for name, value in parts if name == "v1"]
    is_number = stamp.isascii() and stamp.isdigit() and len(stamp) < 16
    return any(found) and is_number and abs(now_s - int(stamp)) <= TOLERANCE_S


def _parts(header: str) -> Iterator[tuple[str, str]]:
    for part in header.split(",", MOST_SIGNATURES)[:MOST_SIGNATURES]:
        name, _, value = part.strip().partition("=")
        yield name, value


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
