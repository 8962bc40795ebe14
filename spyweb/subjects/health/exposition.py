"""Write the measurements of a daemon for Prometheus.  Works in a thread: its input does not change.

Importing this module imports prometheus_client, which a daemon needs only once it is scraped.
"""

from __future__ import annotations

import gzip
import platform
from collections.abc import Iterable, Iterator
from math import inf
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector, CollectorRegistry

from spyweb.histogram import Histogram
from spyweb.subjects.health.service import Meters

COMPRESSION = 1  # of 9: most of what there is to gain, at a fraction of the time

Samples = Iterable[tuple[Any, ...]]  # of a family: the values of its labels, and its own

PROCESS = ProcessCollector(registry=None)  # of the daemon's own process


def write(meters: Meters, accept: str, *, compressed: bool) -> tuple[bytes, str]:
    """Return the text in the format that is accepted, and its content type."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(MeterCollector(meters))
    registry.register(PROCESS)
    encode, content_type = choose_encoder(accept)
    text = encode(registry)
    return gzip.compress(text, COMPRESSION) if compressed else text, content_type


class MeterCollector(Collector):
    """Hands the measurements of one scrape to prometheus_client."""

    def __init__(self, meters: Meters) -> None:
        self._meters = meters

    def collect(self) -> Iterator[Metric]:
        for part in (of_daemon, of_cluster, of_jobs, of_checks, of_ops, of_store, of_alerts, of_workers, of_chores):
            yield from part(self._meters)


def of_daemon(meters: Meters) -> Iterator[Metric]:
    vitals, health = meters.vitals, meters.health
    build = [(vitals.version, platform.python_version(), 1)]
    yield gauge("spyweb_build_info", "Versions of the daemon.", build, labels=("version", "python"))
    yield gauge("spyweb_uptime_seconds", "How long the daemon has been up.", vitals.uptime_s)
    yield gauge("spyweb_healthy", "1 while the daemon makes progress, as /healthz says.", not health.problems)
    text = "Age of the oldest due time that was not handled yet."
    yield gauge("spyweb_scheduler_lag_seconds", text, vitals.scheduler_lag_ms / 1000)
    yield counter("spyweb_loop_stalls", "Times that something held up the event loop for too long.", vitals.loop.stalls)
    yield gauge("spyweb_loop_worst_stall_seconds", "The longest of these times.", vitals.loop.worst_ms / 1000)


def of_cluster(meters: Meters) -> Iterator[Metric]:
    if (cluster := meters.vitals.cluster) is not None:
        yield gauge("spyweb_nodes", "Living nodes of the cluster.", cluster.nodes)
        yield gauge("spyweb_slots_owned", "Slots that this node owns.", cluster.owned)
        yield gauge("spyweb_slots_unowned", "Slots that no living node owns.", cluster.unowned)
        text = "Since the last answered beat of this node."
        yield gauge("spyweb_beat_age_seconds", text, max(0, meters.vitals.now_ms - cluster.answered_ms) / 1000)


def of_jobs(meters: Meters) -> Iterator[Metric]:
    yield gauge("spyweb_jobs", "Jobs in each state.", meters.health.jobs.items(), labels=("state",))
    # One family after the other: the samples of all at once would call the collector, which stops the loop.
    jobs = meters.jobs
    due = "Due times that have passed: run, or recorded with a reason."
    yield counter("spyweb_due_times", due, ((job.job, job.due) for job in jobs), labels=("job",))
    started = ((job.job, job.started) for job in jobs)
    yield counter("spyweb_runs_started", "Runs that have started.", started, labels=("job",))
    ended = ((job.job, outcome.value, count) for job in jobs for outcome, count in job.ended.items())
    text = "Runs that have ended, and due times that did not run."
    yield counter("spyweb_runs_ended", text, ended, labels=("job", "outcome"))
    succeeded = ((job.job, job.succeeded_ms / 1000) for job in jobs if job.succeeded_ms is not None)
    name, text = "spyweb_job_last_success_timestamp_seconds", "When a run of the job last succeeded."
    yield gauge(name, text, succeeded, labels=("job",))
    failing = ((job.job, job.is_failing) for job in jobs if job.is_failing is not None)
    yield gauge("spyweb_job_failing", "1 where the latest run of the job has failed.", failing, labels=("job",))
    yield histogram("spyweb_run_lateness_seconds", "From a due time to the start of its run.", meters.lateness)
    yield histogram("spyweb_run_duration_seconds", "From the start of a run to its end.", meters.duration)
    yield gauge("spyweb_runs_in_flight", "Runs that have started and not ended.", meters.in_flight)
    yield gauge("spyweb_runs_waiting", "Runs that are on record and wait for their turn.", meters.waiting)


def of_checks(meters: Meters) -> Iterator[Metric]:
    labels, checks = ("job", "check"), [job for job in meters.jobs if job.check]
    up = ((job.job, job.check, not job.is_failing) for job in checks if job.is_failing is not None)
    yield gauge("spyweb_check_up", "1 where the latest run of a check has not failed.", up, labels=labels)
    results = [(job.job, job.check, job.result) for job in checks if job.result]
    latency = ((*of, each.latency / 1000) for *of, each in results if each.latency is not None)
    name, text = "spyweb_check_latency_seconds", "What the latest run of a check has measured, if it has succeeded."
    yield gauge(name, text, latency, labels=labels)
    days = ((*of, each.certificate_days) for *of, each in results if each.certificate_days is not None)
    yield gauge("spyweb_check_cert_days", "For how many days the certificate is still valid.", days, labels=labels)


def of_ops(meters: Meters) -> Iterator[Metric]:
    ops, op = meters.ops, ("op",)
    yield counter("spyweb_ops", "Ops that scripts have called.", sorted(ops.calls.items()), labels=op)
    yield counter("spyweb_op_errors", "Ops that were refused, or have failed.", sorted(ops.errors.items()), labels=op)
    refused = sorted(ops.storage_errors.items())
    yield counter("spyweb_storage_errors", "Writes of scripts that the store has refused.", refused, labels=op)
    times = HistogramMetricFamily("spyweb_op_duration_seconds", "From the arrival of an op to its answer.", labels=op)
    for name, each in sorted(meters.op_times.items()):
        times.add_metric([name], buckets_of(each), each.sum)
    yield times


def of_store(meters: Meters) -> Iterator[Metric]:
    store = meters.vitals.store
    yield histogram("spyweb_store_commit_writes", "Writes that share a commit.", meters.commit_sizes)
    yield counter("spyweb_store_errors", "Writes that have failed.", store.errors)
    yield gauge("spyweb_store_pending_writes", "Writes that wait for a commit.", store.pending)
    yield gauge("spyweb_store_oldest_pending_seconds", "Age of the oldest of them.", store.oldest_pending_s)
    yield gauge("spyweb_store_size_bytes", "The size of the database with its log.", store.size_bytes)
    yield gauge("spyweb_outbox_dead_messages", "Messages that were given up.", meters.vitals.dead_messages)
    if meters.backlog is not None:
        waiting, oldest_ms, _ = meters.backlog
        age_s = 0.0 if oldest_ms is None else max(0, meters.vitals.now_ms - oldest_ms) / 1000
        yield gauge("spyweb_outbox_messages", "Messages that have not arrived yet.", waiting)
        yield gauge("spyweb_outbox_oldest_age_seconds", "The age of the oldest of them; 0 without any.", age_s)


def of_alerts(meters: Meters) -> Iterator[Metric]:
    if meters.incidents is not None:
        levels = ((level.value, count) for level, count in meters.incidents.items())
        yield gauge("spyweb_incidents_open", "Incidents that are open.", levels, labels=("level",))
    sent = ((name, each.sent) for name, each in meters.channels.items())
    yield counter("spyweb_alerts_sent", "Messages that notification channels have accepted.", sent, labels=("channel",))
    failed = ((name, each.failed) for name, each in meters.channels.items())
    text = "Attempts to send to notification channels that have failed."
    yield counter("spyweb_alerts_failed", text, failed, labels=("channel",))


def of_workers(meters: Meters) -> Iterator[Metric]:
    pool = meters.vitals.pool
    up = [worker for worker in pool.workers if worker.pid]
    yield gauge("spyweb_workers", "Worker processes that are up.", len(up))
    yield counter("spyweb_worker_deaths", "Workers that have died, including killed ones.", pool.deaths)
    yield counter("spyweb_worker_kills", "Workers that the daemon has killed: stuck, silent or broken.", pool.kills)
    shared = (worker for worker in up if worker.job is None)  # by number: a process id would be a new series each death
    found = [(str(number), worker.used_bytes, worker.vms) for number, worker in enumerate(shared, 1)]
    if own := [worker for worker in up if worker.job is not None]:
        found.append(("own", sum(worker.used_bytes for worker in own), sum(worker.vms for worker in own)))
    memory = ((name, used) for name, used, _ in found)
    yield gauge("spyweb_worker_memory_bytes", "Memory of a worker's VMs.", memory, labels=("worker",))
    vms = ((name, count) for name, _, count in found)
    yield gauge("spyweb_worker_vms", "VMs of a worker.", vms, labels=("worker",))
    text = "Jobs that are quarantined in their own worker."
    yield gauge("spyweb_quarantined_jobs", text, len(pool.quarantined))
    yield counter("spyweb_vms_loaded", "VMs that were made for runs.", pool.loads)


def of_chores(meters: Meters) -> Iterator[Metric]:
    done = [each for each in meters.vitals.chores if each.last_at_ms is not None]
    at = ((each.name, (each.last_at_ms or 0) / 1000) for each in done)
    yield gauge("spyweb_chore_last_run_timestamp_seconds", "When a chore was last begun.", at, labels=("chore",))
    took = ((each.name, (each.last_took_ms or 0) / 1000) for each in done)
    yield gauge("spyweb_chore_last_duration_seconds", "How long it took then.", took, labels=("chore",))
    failed = ((each.name, bool(each.error)) for each in done)
    yield gauge("spyweb_chore_failed", "1 where it failed then.", failed, labels=("chore",))


def gauge(name: str, text: str, value: Samples | float, *, labels: tuple[str, ...] = ()) -> Metric:
    return _filled(GaugeMetricFamily(name, text, labels=labels), value)


def counter(name: str, text: str, value: Samples | float, *, labels: tuple[str, ...] = ()) -> Metric:
    return _filled(CounterMetricFamily(name, text, labels=labels), value)


def _filled(family: CounterMetricFamily | GaugeMetricFamily, value: Samples | float) -> Metric:
    for *names, each in [(value,)] if isinstance(value, int | float) else value:
        family.add_metric(names, each)
    return family


def histogram(name: str, text: str, measured: Histogram) -> HistogramMetricFamily:
    return HistogramMetricFamily(name, text, buckets=buckets_of(measured), sum_value=measured.sum)


def buckets_of(measured: Histogram) -> list[tuple[str, float]]:
    return [("+Inf" if bound == inf else str(bound), count) for bound, count in measured.cumulative()]
