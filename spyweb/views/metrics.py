"""The measurements of a running daemon at one moment, for a monitoring system.  Nothing in them changes any more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from spyweb.histogram import Histogram
from spyweb.incidents.policy import Level
from spyweb.model import Outcome, Run
from spyweb.store.model.messages import Backlog
from spyweb.views.health import Health, Vitals

OTHERS = "_other"  # stands for the jobs that have no series of their own; no job has such an id
FAILURES = frozenset({Outcome.FAILED, Outcome.LOST})


class JobMeters(Struct, frozen=True, kw_only=True):
    """The measurements of one job, or of the others together."""

    job: str
    due: int
    started: int
    ended: Mapping[Outcome, int]
    succeeded_ms: int | None = None  # when a run last ended as a success
    is_failing: bool | None = None  # None: it has not run, or these are several jobs


class OpMeters(Struct, frozen=True, kw_only=True):
    op: str
    calls: int
    errors: int
    storage_errors: int
    times: Histogram | None = None


class ChannelMeters(Struct, frozen=True, kw_only=True):
    """The measurements of one alert channel of the settings."""

    channel: str
    sent: int
    failed: int  # attempts


class Meters(Struct, frozen=True, kw_only=True):
    """All measurements of one scrape."""

    vitals: Vitals
    health: Health
    jobs: Sequence[JobMeters]
    lateness: Histogram
    duration: Histogram
    in_flight: int
    waiting: int
    ops: Sequence[OpMeters]
    commit_sizes: Histogram
    backlog: Backlog | None  # of the outbox; None: the store did not tell
    incidents: Mapping[Level, int] | None = None  # that are open, by level; None: the store did not tell
    channels: Sequence[ChannelMeters] = ()


def is_failing(last: Run | None) -> bool | None:
    return None if last is None or last.outcome is None else last.outcome in FAILURES
