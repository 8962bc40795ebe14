"""The messages between the daemon and the process for one job's SQL.

Over one socket go frames: a 4-byte little-endian length and a msgpack array.  The daemon sends a SqlSetup, then one
SqlRequest at a time, and each is answered by one Answered.  The end of that socket asks for an orderly end.  Over the
other socket goes the number of a request that is to be interrupted, 4 bytes; its end asks for an end at once.
"""

from __future__ import annotations

import msgspec

from spyweb.confined.frames import framed
from spyweb.model import JobId
from spyweb.store.user_sql.connection import Answered, Opening, Statement

MOST_BYTES = (1 << 32) - 1  # of a frame


class SqlSetup(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """Open the connection of this job."""

    job: JobId
    opening: Opening


class SqlRequest(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """Execute one statement, or without one roll back a transaction that was left open."""

    number: int
    now_ms: int  # as the daemon's clock shows it
    statement: Statement | None


_encoder = msgspec.msgpack.Encoder(enc_hook=str)  # of the paths
setup_decoder = msgspec.msgpack.Decoder(SqlSetup, dec_hook=lambda kind, text: kind(text))
request_decoder = msgspec.msgpack.Decoder(SqlRequest)
decode_answer = msgspec.msgpack.Decoder(Answered).decode


def frame(message: msgspec.Struct) -> bytes:
    """Return the message with its length in front.  Raises ValueError when it is too large."""
    body = _encoder.encode(message)
    if len(body) > MOST_BYTES:
        raise ValueError(f"a frame of {len(body)} bytes")
    return framed(body)
