"""Compute hashes and base64 of long texts for `crypto.*`; short ones are computed in the worker (lua/worker/crypto.py).

A private op.  The work is done in threads.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable, Mapping

from spyweb.errors import OpError
from spyweb.ops.arguments import Text
from spyweb.ops.op import OpEffect, op
from spyweb.ops.world import Call


def _hash(name: str) -> Callable[[bytes, bytes], bytes]:
    return lambda data, _: hashlib.new(name, data, usedforsecurity=False).hexdigest().encode()


def _decode(text: bytes, _: bytes) -> bytes | None:
    try:
        return binascii.a2b_base64(text.translate(None, b"\r\n"), strict_mode=True)
    except binascii.Error:
        return None


FUNCTIONS: Mapping[bytes, Callable[[bytes, bytes], bytes | None]] = {
    **{name.encode(): _hash(name) for name in ("sha256", "sha512", "sha1", "md5")},
    b"hmac_sha256": lambda data, key: hmac.new(key, data, "sha256").hexdigest().encode(),
    b"base64_encode": lambda data, _: base64.b64encode(data),
    b"base64_decode": _decode,
}


@op(name="_crypto", effect=OpEffect.NONE)
async def compute(call: Call, function: Text, data: Text, key: Text = b"") -> bytes | None:
    """Compute a hash, or base64, of a long text; nil for a text that is not base64."""
    if function not in FUNCTIONS:
        raise OpError("there is no such function of crypto")
    return await asyncio.to_thread(FUNCTIONS[function], data, key)
