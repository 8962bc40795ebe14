"""What Prometheus reads: parsed back by its own parsers."""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec.structs import replace
from prometheus_client.core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families

from spyweb.store.model.runs import CheckResult
from spyweb.subjects.health.exposition import write
from spyweb.subjects.health.service import OTHERS, JobMeters, Meters
from tests.fakes.daemon_service import NOW_MS
from tests.fakes.meters import make_meters

OPENMETRICS = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"


def parsed(meters: Meters) -> Mapping[str, Metric]:
    body, content_type = write(meters, "text/plain;version=0.0.4", compressed=False)
    assert content_type.startswith("text/plain; version=0.0.4")
    read = text_string_to_metric_families(body.decode())
    return {family.name: family for family in read}


def samples(family: Metric) -> dict[tuple[str, ...], float]:
    return {(sample.name, *sample.labels.values()): sample.value for sample in family.samples}


def test_the_runs_of_a_job_are_told_by_outcome_and_only_those_that_occurred() -> None:
    families = parsed(make_meters())
    assert samples(families["spyweb_runs_ended"]) == {
        ("spyweb_runs_ended_total", "prices", "success"): 3,
        ("spyweb_runs_ended_total", "prices", "missed"): 1,
    }
    assert samples(families["spyweb_due_times"]) == {("spyweb_due_times_total", "prices"): 4}
    succeeded = samples(families["spyweb_job_last_success_timestamp_seconds"])
    assert succeeded == {("spyweb_job_last_success_timestamp_seconds", "prices"): NOW_MS / 1000}
    assert families["spyweb_runs_ended"].type == "counter"


def test_a_histogram_comes_back_as_it_was_measured() -> None:
    family = parsed(make_meters())["spyweb_run_duration_seconds"]
    buckets = {sample.labels["le"]: sample.value for sample in family.samples if sample.name.endswith("_bucket")}
    assert (buckets["0.25"], buckets["1.0"], buckets["2.5"], buckets["+Inf"]) == (0, 1, 2, 2)
    assert {sample.name[-4:]: sample.value for sample in family.samples if "le" not in sample.labels} == {
        "ount": 2,
        "_sum": 2.5,
    }


def test_the_others_together_say_nothing_that_only_one_job_could() -> None:
    families = parsed(make_meters(JobMeters(job=OTHERS, due=0, started=7, ended={})))
    assert samples(families["spyweb_runs_started"]) == {("spyweb_runs_started_total", OTHERS): 7}
    assert not families["spyweb_job_failing"].samples


def test_the_age_of_the_outbox_is_left_out_where_the_store_did_not_tell() -> None:
    assert samples(parsed(make_meters())["spyweb_outbox_oldest_age_seconds"]) == {
        ("spyweb_outbox_oldest_age_seconds",): 90
    }
    assert "spyweb_outbox_oldest_age_seconds" not in parsed(make_meters(backlog=None))


def test_a_chore_is_told_once_it_has_been_done() -> None:
    families = parsed(make_meters())
    assert samples(families["spyweb_chore_failed"]) == {("spyweb_chore_failed", "prune"): 1}
    assert samples(families["spyweb_chore_last_duration_seconds"])["spyweb_chore_last_duration_seconds", "prune"] == 1.5


def test_every_name_follows_the_conventions() -> None:
    for name, family in parsed(make_meters()).items():
        if name.startswith(("process_", "python_")):
            continue
        assert re.fullmatch(r"spyweb_[a-z]+(_[a-z]+)*", name), name
        assert family.documentation.endswith("."), name
        if family.type == "counter":
            assert all(sample.name == f"{name}_total" for sample in family.samples)
        else:
            assert not name.endswith("_total")
        assert not re.search(r"_(ms|milliseconds|minutes|mb|kb)$", name), "base units"


def test_openmetrics_is_written_where_it_is_asked_for() -> None:
    body, content_type = write(make_meters(), OPENMETRICS, compressed=False)
    assert content_type.startswith("application/openmetrics-text; version=1.0.0")
    families = {family.name: family for family in parse_openmetrics(body.decode())}  # type: ignore[no-untyped-call]
    assert samples(families["spyweb_due_times"]) == {("spyweb_due_times_total", "prices"): 4}
    assert body.endswith(b"# EOF\n")


def test_incidents_are_told_by_level_and_alerts_by_channel() -> None:
    families = parsed(make_meters())
    assert samples(families["spyweb_incidents_open"]) == {
        ("spyweb_incidents_open", "info"): 0,
        ("spyweb_incidents_open", "warning"): 2,
        ("spyweb_incidents_open", "critical"): 1,
    }
    assert samples(families["spyweb_alerts_sent"]) == {("spyweb_alerts_sent_total", "ops"): 5}
    assert samples(families["spyweb_alerts_failed"]) == {("spyweb_alerts_failed_total", "ops"): 1}
    assert "spyweb_incidents_open" not in parsed(replace(make_meters(), incidents=None))


def test_only_checks_are_told_as_up_or_down_with_what_their_kind_measures_while_up() -> None:
    down = JobMeters(job="port", is_failing=True, check="tcp")
    tls = JobMeters(job="name", is_failing=False, check="tls", result=CheckResult(days=12))
    families = parsed(
        make_meters(JobMeters(job="prices", is_failing=False), down, JobMeters(job="new", check="dns"), tls)
    )
    assert [*samples(families["spyweb_check_up"]).values()] == [0, 1]
    assert samples(families["spyweb_check_cert_days"]) == {("spyweb_check_cert_days", "tls", "name"): 12}
    assert not families["spyweb_check_latency_seconds"].samples
    assert [*samples(parsed(make_meters())["spyweb_check_latency_seconds"]).values()] == [0.085]
