"""Join the rules on which past versions of stored values are kept.  Pure."""

from __future__ import annotations

from collections.abc import Iterable

from spyweb.model import JobSpec
from spyweb.store.protocol import job_namespace
from spyweb.store.values_protocol import HistoryRules


def history_rules(configured: HistoryRules, specs: Iterable[JobSpec]) -> HistoryRules:
    """Return the rules of `[state.history]`, and of each job the rule that it sets for its own values."""
    return {**configured, **{job_namespace(spec.id): spec.history for spec in specs if spec.history}}
