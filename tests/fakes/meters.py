"""Measurements of a daemon that has done a little of everything, and the names that a scrape then tells."""

from __future__ import annotations

from collections import Counter

from prometheus_client.parser import text_string_to_metric_families

from spyweb.alerts.channels import ChannelTally
from spyweb.histogram import SHORT_SECONDS, Histogram
from spyweb.incidents.policy import Level
from spyweb.model import Outcome
from spyweb.ops.world import Metrics
from spyweb.store.model.messages import Backlog
from spyweb.store.model.runs import CheckResult
from spyweb.subjects.health.exposition import write
from spyweb.subjects.health.service import JobMeters, Meters
from spyweb.subjects.health.views import ChoreHealth, ClusterVitals, view_health
from tests.fakes.daemon_service import NOW_MS, make_vitals, three_states

WAITING = Backlog(2, NOW_MS - 90_000)


def measured(*values: float) -> Histogram:
    histogram = Histogram(SHORT_SECONDS)
    for value in values:
        histogram.observe(value)
    return histogram


def make_meters(*jobs: JobMeters, backlog: Backlog | None = WAITING) -> Meters:
    chore = ChoreHealth(name="prune", every_s=60, last_at_ms=NOW_MS, last_took_ms=1500, error="full")
    cluster = ClusterVitals(nodes=2, owned=128, unowned=0, answered_ms=NOW_MS - 500, offset_ms=3)
    vitals = make_vitals(cluster=cluster, now_ms=NOW_MS, chores=[chore, ChoreHealth(name="sweep", every_s=60)])
    ops = Metrics(calls=Counter(http_get=3), errors=Counter(http_get=1), storage_errors=Counter(http_get=1))
    prices = JobMeters(
        job="prices",
        due=4,
        started=3,
        ended={Outcome.SUCCESS: 3, Outcome.MISSED: 1},
        succeeded_ms=NOW_MS,
        is_failing=False,
        check="http",
        result=CheckResult(latency=85, cert_days=43),
    )
    return Meters(
        vitals=vitals,
        health=view_health(vitals, three_states()),
        jobs=jobs or [prices],
        lateness=measured(0.01),
        duration=measured(0.5, 2.0),
        in_flight=1,
        waiting=2,
        ops=ops,
        op_times={"http_get": measured(0.2, 3.0)},
        commit_sizes=measured(1.0),
        backlog=backlog,
        incidents={Level.INFO: 0, Level.WARNING: 2, Level.CRITICAL: 1},
        channels={"ops": ChannelTally(sent=5, failed=1)},
    )


def sample_names() -> set[str]:
    """Return the names of all samples of a scrape."""
    text, _ = write(make_meters(), "", compressed=False)
    families = text_string_to_metric_families(text.decode())
    return {sample.name for family in families for sample in family.samples}
