"""The wire between the daemon and the process of one job's SQL.

Over one socket go frames: a 4-byte little-endian length and a msgpack array.  The daemon sends a SqlSetup, then one
SqlRequest at a time, and each is answered by one Answered.  The end of that socket asks for an orderly end.  Over the
other socket goes the number of a request that is to be interrupted, 4 bytes; its end asks for an end at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from spyweb.model import JobId
from spyweb.store.protocol import Durability
from spyweb.store.user_sql.connection import LONGEST_S, Answered, Opening, Statement
from spyweb.store.user_sql.views import Engine

HEADER = 4  # bytes
MOST_BYTES = (1 << 32) - 1  # of a frame


class SqlSetup(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """Open the connection of this job."""

    job: str
    path: str
    engine: str | None  # path of the engine's database
    key: bytes | None  # of what is encrypted there
    durability: Durability

    @classmethod
    def from_opening(cls, opening: Opening, job: JobId) -> SqlSetup:
        engine = opening.engine
        return cls(
            job=job,
            path=str(opening.path),
            engine=str(engine.path) if engine else None,
            key=engine.key if engine else None,
            durability=opening.durability,
        )

    def opening(self) -> Opening:
        engine = Engine(path=Path(self.engine), key=self.key) if self.engine is not None else None
        return Opening(path=Path(self.path), engine=engine, durability=self.durability)


class SqlRequest(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """Carry out one statement; or, without one, end a transaction that was left open."""

    number: int
    now_ms: int  # as the daemon's clock shows it
    sql: str | None = None
    parameters: Sequence[Any] = ()  # each a Parameter: msgspec knows no union of text and bytes
    wants_rows: bool = False
    largest: int = 0
    longest_s: float = LONGEST_S

    def statement(self) -> Statement:
        return Statement(
            sql=self.sql or "",
            parameters=self.parameters,
            wants_rows=self.wants_rows,
            largest=self.largest,
            longest_s=self.longest_s,
        )


_encoder = msgspec.msgpack.Encoder()
setup_decoder = msgspec.msgpack.Decoder(SqlSetup)
request_decoder = msgspec.msgpack.Decoder(SqlRequest)
decode_answer = msgspec.msgpack.Decoder(Answered).decode


def frame(message: msgspec.Struct) -> bytes:
    """Raises ValueError when it is too large."""
    body = _encoder.encode(message)
    if len(body) > MOST_BYTES:
        raise ValueError(f"a frame of {len(body)} bytes")
    return len(body).to_bytes(HEADER, "little") + body
