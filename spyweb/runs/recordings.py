"""The records of runs: which runs have one, and what they hide.

A record is encoded once its run has ended, and only where it is kept.  It hides what the log hides, and each value that
has a secret's name, wherever else that appears.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import structlog
from msgspec import Raw, Struct, field
from msgspec.structs import replace

from spyweb.logs.secrets import HIDDEN, Secrets, is_secret
from spyweb.lua import wire
from spyweb.lua.channel import as_bytes, pack
from spyweb.lua.recording import HeldBytes, Recording, RunRecord, decode_record
from spyweb.lua.session import EngineInfo, Request
from spyweb.model import Ending, JobSpec, Outcome, RecordRule, RunId

SMALL = 16_384  # bytes: encoding more holds up the event loop for too long
MOST_SECRETS = 50  # that are looked for in each text; in a record with more all texts are hidden
KEEPING = ("store_", "state")  # how the ops begin that keep a value under a name
LEAST_HIDDEN = 100_000  # of the numbers under a secret's name: smaller ones are counts

log = structlog.get_logger()


class RunRecorder(Struct, kw_only=True):
    secrets: Secrets = field(default_factory=Secrets)
    engine: EngineInfo = EngineInfo(ops=())
    seal: Callable[[RunId, bytes], tuple[str, bytes]] = lambda _, data: ("", data)
    held: HeldBytes = field(default_factory=HeldBytes)

    def begin(self, spec: JobSpec, ago_ms: int) -> Recording | None:
        return None if spec.record is RecordRule.NEVER else Recording(self.held, ago_ms / 1000)

    async def keep(self, rule: RecordRule, request: Request, ending: Ending) -> Ending:
        """Return the ending of a run, with its record where that is kept."""
        recording, is_well = request.recording, ending.outcome in (Outcome.SUCCESS, Outcome.SKIPPED)
        if recording is None or (is_well and rule is not RecordRule.ALWAYS):
            return ending
        encoding = partial(self._encode, request, recording)
        try:
            sealed = encoding() if recording.held_bytes < SMALL else await asyncio.to_thread(encoding)
        except Exception:  # it costs the record, not the run
            log.exception("the record of a run was lost", run=request.run, job=request.code.job)
            return ending
        return replace(ending, record=sealed)

    def _encode(self, request: Request, recording: Recording) -> tuple[str, bytes]:
        noted = RunRecord(
            procedure=request.procedure,
            arguments=Raw(pack(request.arguments)),
            variables=self.engine.shown_to(request.code),
            engine=self.engine.engine,
            reads=recording.reads,
            ops=recording.ops,
            left_out=recording.left_out,
        )
        record, hiding = decode_record(wire.pack(noted)), Hiding(self.secrets)
        for _ in range(2):  # the first time finds values that have a secret's name
            record = hidden(record, hiding)
        return self.seal(request.run, wire.pack(record))


def hidden(record: RunRecord, hiding: Hiding) -> RunRecord:
    ops = []
    for op in record.ops:
        is_named = op.status == "ok" and is_of_secret(op.name, op.given)
        given, answer = hiding.hide_given(op.name, op.given), hiding.hide(op.answer, is_named)
        ops.append(replace(op, given=given, answer=answer))
    arguments, variables, reads = map(hiding.hide, (record.arguments, record.variables, record.reads))
    return replace(record, arguments=arguments, variables=variables, reads=reads, ops=ops)


def is_of_secret(op: str, given: Any) -> bool:
    """Return whether an op keeps or finds a value under a name that says that it is a secret."""
    if not given or not op.startswith(KEEPING):
        return False
    key = given[0].get(b"key") if isinstance(given[0], Mapping) else given[0]
    return is_secret(_text(key))


class Hiding:
    """Hides what the log hides, and each value that it has met under a secret's name."""

    def __init__(self, known: Secrets) -> None:
        self._known = known
        self._named = set[str]()  # texts that had such a name
        self._found = Secrets()  # the same

    def hide(self, value: Any, is_named: bool = False) -> Any:
        """Return a value without secrets; `is_named`: a name above it says that it is one."""
        match value:
            case bytes():
                return as_bytes(self._hide_text(_text(value), is_named))
            case str():
                return self._hide_text(value, is_named)
            case int() if is_named and value >= LEAST_HIDDEN:
                return HIDDEN
            case Mapping():
                has_secret = is_secret(_text(value.get(b"key")))  # as its `value`
                return {
                    key: self.hide(each, is_named or is_secret(_text(key)) or (has_secret and key == b"value"))
                    for key, each in value.items()
                }
            case list():
                return [self.hide(each, is_named) for each in value]
        return value

    def hide_given(self, op: str, given: Any) -> Any:
        """Return the arguments of an op; of one that keeps a value, the first is its name."""
        return given and [self.hide(given[0]), *self.hide(given[1:], is_of_secret(op, given))]

    def _hide_text(self, text: str, is_named: bool) -> str:
        if is_named:
            self._learn(text)
            self._learn(text.rpartition(" ")[2])  # after "Bearer"
        else:
            text = self._known.hide_in_data(self._found.hide_in_text(text), self._learn)
        return HIDDEN if is_named or len(self._named) > MOST_SECRETS else text

    def _learn(self, text: str) -> None:
        if text not in self._named and len(self._named) <= MOST_SECRETS:
            self._named.add(text)
            self._found = Secrets(self._named)


def _text(value: object) -> str:
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else str(value)
