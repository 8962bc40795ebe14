"""The records of runs: which runs have one, and what they hide.

A record is encoded once its run has ended, and only where it is kept.  It hides what the log hides, and each value that
has a secret's name, wherever else that appears.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from spyweb.logs.secrets import HIDDEN, Secrets, is_secret, texts_named_secret
from spyweb.lua import wire
from spyweb.lua.channel import as_bytes, pack
from spyweb.lua.recording import HeldBytes, RecordedOp, Recording, RunRecord
from spyweb.lua.session import Request
from spyweb.model import Ending, JobSpec, Outcome, RecordRule, RunId

SMALL = 16_384  # bytes: encoding more holds up the event loop for too long
LEAST_HIDDEN = 100_000  # of the numbers under a secret's name: smaller ones are counts

Sealed = tuple[str, bytes]


class RunRecorder(Struct, kw_only=True):
    secrets: Secrets = field(default_factory=Secrets)
    variables: Mapping[str, str] = {}  # of env_get
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
        sealed = encoding() if recording.held_bytes < SMALL else await asyncio.to_thread(encoding)
        return replace(ending, record=sealed)

    def _encode(self, request: Request, recording: Recording) -> Sealed:
        permitted = [rule.names for rule in request.code.variables]
        shown = {name: text for name, text in self.variables.items() if all(name in names for names in permitted)}
        hiding, arguments = Hiding(self.secrets), pack(request.arguments)
        hiding.learn([shown, *(wire.unpack(each) for op in recording.ops for each in (op.given, op.answer) if each)])
        record = RunRecord(
            procedure=request.procedure,
            arguments=hiding.hide_packed(arguments),
            variables=hiding.hide(shown),
            reads=hiding.hide(recording.reads),
            ops=[hidden_op(op, hiding) for op in recording.ops],
            left_out=recording.left_out,
        )
        return self.seal(request.run, msgspec.msgpack.encode(record))


def hidden_op(op: RecordedOp, hiding: Hiding) -> RecordedOp:
    return replace(
        op, given=op.given and hiding.hide_packed(op.given), answer=op.answer and hiding.hide_packed(op.answer)
    )


class Hiding:
    def __init__(self, known: Secrets) -> None:
        self._secrets = known

    def learn(self, values: object) -> None:
        """Find the secrets in these values, which are then hidden everywhere."""
        found = set[str]()

        def note(text: str, has_name: bool) -> str:
            found.update([text, text.rpartition(" ")[2]] if has_name else texts_named_secret(text))
            return text

        _with_texts(values, note)
        self._secrets = self._secrets.with_others(found)

    def hide(self, value: Any) -> Any:
        return _with_texts(value, lambda text, has_name: HIDDEN if has_name else self._secrets.hide_in_data(text))

    def hide_packed(self, values: bytes) -> bytes:
        return pack(self.hide(wire.unpack(values)))


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
