"""The records of runs: which runs have one, and what they hide.

A record is encoded once its run has ended, and only where it is kept.  It hides what the log hides, and each value that
has a secret's name, wherever else that appears.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
import structlog
from msgspec import Struct, field
from msgspec.structs import replace

from spyweb.logs.secrets import HIDDEN, SHORTEST, Secrets, is_secret, texts_named_secret
from spyweb.lua import wire
from spyweb.lua.channel import as_bytes, pack
from spyweb.lua.recording import HeldBytes, RecordedOp, Recording, RunRecord
from spyweb.lua.session import EngineInfo, Request
from spyweb.model import Ending, JobSpec, Outcome, RecordRule, RunId

SMALL = 16_384  # bytes: encoding more holds up the event loop for too long
MOST_SECRETS = 50  # that are looked for in each text; in a record with more all texts are hidden
KEEPING = ("store_", "state")  # how the ops begin that keep a value under a name
LEAST_HIDDEN = 100_000  # of the numbers under a secret's name: smaller ones are counts

log = structlog.get_logger()

Sealed = tuple[str, bytes]


class RunRecorder(Struct, kw_only=True):
    secrets: Secrets = field(default_factory=Secrets)
    engine: EngineInfo = EngineInfo(ops=())
    seal: Callable[[RunId, bytes], Sealed] = lambda _, data: ("", data)
    held: HeldBytes = field(default_factory=HeldBytes)

    def begin(self, spec: JobSpec) -> Recording | None:
        return None if spec.record is RecordRule.NEVER else Recording(self.held)

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

    def _encode(self, request: Request, recording: Recording) -> Sealed:
        shown = self.engine.shown_to(request.code)
        hiding, arguments = Hiding(self.secrets), wire.unpack(pack(request.arguments))
        hiding.learn([shown, arguments, *map(values_by_name, recording.ops)])
        record = RunRecord(
            procedure=request.procedure,
            arguments=pack(hiding.hide(arguments)),
            variables=hiding.hide(shown),
            engine=self.engine.engine,
            reads=hiding.hide(recording.reads),
            ops=[hidden_op(op, hiding) for op in recording.ops],
            left_out=recording.left_out,
        )
        return self.seal(request.run, msgspec.msgpack.encode(record))


def values_by_name(op: RecordedOp) -> object:
    """Return the values of an op, below the name under which it keeps them if that says that they are secret."""
    given, answer = (wire.unpack(values) if values else [] for values in (op.given, op.answer))
    if op.is_error or not is_of_secret(op.name, given):
        return [given, answer]
    return {"secret": [given[1:], answer]}


def is_of_secret(op: str, given: Sequence[object]) -> bool:
    """Return whether an op keeps or finds a value under a name that says that it is a secret."""
    first = given[0] if given and op.startswith(KEEPING) else None
    return is_secret(_text(first.get(b"key") if isinstance(first, Mapping) else first))


def hidden_op(op: RecordedOp, hiding: Hiding) -> RecordedOp:
    has_name = is_of_secret(op.name, wire.unpack(op.given) if op.given else ())
    return replace(
        op,
        given=hiding.hide_packed(op.given, has_name),
        answer=hiding.hide_packed(op.answer, has_name and not op.is_error),
    )


class Hiding:
    def __init__(self, known: Secrets) -> None:
        self._secrets = known
        self._hides_all = False

    def learn(self, values: object) -> None:
        """Find the secrets in these values, which are then hidden everywhere."""
        found = set[str]()

        def note(text: str, has_name: bool) -> str:
            found.update([text, text.rpartition(" ")[2]] if has_name else texts_named_secret(text))
            return text

        _with_texts(values, note)
        self._hides_all |= len(found) > MOST_SECRETS
        self._secrets = self._secrets.with_others([] if self._hides_all else found)

    def hide(self, value: Any, has_name: bool = False) -> Any:
        return _with_texts(value, self._hidden, has_name)

    def hide_packed(self, values: bytes | None, has_name: bool) -> bytes | None:
        return None if values is None else pack(self.hide(wire.unpack(values), has_name))

    def _hidden(self, text: str, has_name: bool) -> str:
        if has_name or self._hides_all:
            return HIDDEN
        return text if len(text) < SHORTEST else self._secrets.hide_in_data(text)


def _with_texts(value: object, change: Callable[[str, bool], str], has_name: bool = False) -> object:
    """Return a value with other texts; `change` hears whether a name above the text says that it is secret."""
    match value:
        case bytes():
            return as_bytes(change(_text(value), has_name))
        case str():
            return change(value, has_name)
        case int() if has_name and value >= LEAST_HIDDEN:
            return HIDDEN
        case Mapping():
            return {key: _with_texts(each, change, has_name or is_secret(_text(key))) for key, each in value.items()}
        case list():
            return [_with_texts(each, change, has_name) for each in value]
    return value


def _text(value: object) -> str:
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else str(value)
