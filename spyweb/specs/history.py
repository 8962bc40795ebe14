"""Of which stored values past versions are kept.  Pure."""

from __future__ import annotations

from collections.abc import Iterable

from spyweb.model import JobSpec
from spyweb.store.protocol import HistoryRules, job_namespace


def history_rules(configured: HistoryRules, specs: Iterable[JobSpec]) -> HistoryRules:
    """What `[state.history]` says, and of each job what it says itself of its own values."""
    return {**configured, **{job_namespace(spec.id): spec.history for spec in specs if spec.history}}
