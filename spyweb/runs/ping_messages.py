"""Build the messages by which a watcher elsewhere is told of a job's runs.  Pure.

They bear neither address nor log: both are looked up when a message is sent.
"""

from __future__ import annotations

import uuid

import msgspec
from msgspec import Struct

from spyweb.model import JobSpec, Outcome, Run, RunId
from spyweb.runs.records import first_of
from spyweb.store.model.messages import Channel, NewMessage, Target
from spyweb.store.model.runs import End

START, SUCCESS, FAIL = "start", "success", "fail"
SAID = {Outcome.SUCCESS: SUCCESS, Outcome.FAILED: FAIL, Outcome.LOST: FAIL}  # of others nothing
KIND = "kind"  # of the headers of such a message: of one kind only the newest waits

_RUNS = uuid.UUID("8f3f0d3a-5f0f-4d3b-9d6e-6a1f7b2d9c10")  # of no other meaning


class PingFacts(Struct, frozen=True, kw_only=True):
    """The payload of a ping."""

    kind: str
    rid: str  # the same for all that is told of a run, its retries included
    run: RunId
    started_ms: int | None
    ended_ms: int | None = None
    reason: str = ""


decode_ping = msgspec.json.Decoder(PingFacts).decode


def start_ping(spec: JobSpec, run: Run) -> NewMessage | None:
    """Return what tells that a run has begun; None where nobody is to be told."""
    if spec.ping is None or not (spec.ping.base or spec.ping.start) or run.attempt > 1 or run.trigger.is_aside:
        return None
    return _message(run, PingFacts(kind=START, rid=rid_of(run), run=run.id, started_ms=run.started_ms))


def end_ping(spec: JobSpec, run: Run, end: End) -> NewMessage | None:
    """Return what tells how a run, which is not tried again, has ended; None where nobody is to be told."""
    kind = SAID.get(end.outcome)
    if spec.ping is None or kind is None or run.trigger.is_aside:
        return None
    if not (spec.ping.base or (spec.ping.success if kind == SUCCESS else spec.ping.fail)):
        return None
    facts = PingFacts(
        kind=kind,
        rid=rid_of(run),
        run=run.id,
        started_ms=run.started_ms,
        ended_ms=end.ended_ms,
        reason=end.reason,
    )
    return _message(run, facts)


def rid_of(run: Run) -> str:
    return str(uuid.uuid5(_RUNS, f"{run.job}/{first_of(run)}"))


def _message(run: Run, facts: PingFacts) -> NewMessage:
    target = Target(Channel.PING, run.job)
    return NewMessage(job=run.job, target=target, payload=msgspec.json.encode(facts), headers=((KIND, facts.kind),))
