"""Strips that are kept up to date are the same as strips that are read anew."""

from __future__ import annotations

from spyweb.model import JobId, RunId
from spyweb.runs.live import LiveJobs
from spyweb.service.strips import SHOWN_RUNS, JobStrip, Strips, late_after
from spyweb.store.model.runs import Change, RunStrip
from spyweb.views.strips import LATE_MS
from tests.fakes.changes import PRICES, make_end, make_run, make_skipped
from tests.fakes.harness import make_job


def known(marks: str = "") -> Strips:
    live = LiveJobs()
    live.add(make_job("prices"))
    strips = Strips(live)
    strips.begin_reading([PRICES])
    strips.keep(PRICES, JobStrip(RunStrip(ids=range(1, len(marks) + 1), marks=marks, took_ms=[5] * len(marks)), None))
    return strips


def marks_of(strips: Strips) -> str:
    return strips.of_job[PRICES].show().marks


def test_a_strip_holds_the_newest_runs_alone() -> None:
    strips = known("s" * SHOWN_RUNS)
    strips.hear(Change(new=[make_run()]), [RunId(99)])

    shown = strips.of_job[PRICES].show()
    assert (shown.marks, shown.ids[-1], len(shown.took_ms)) == ("s" * (SHOWN_RUNS - 1) + "r", 99, SHOWN_RUNS)


def test_neighbouring_ranges_of_one_reason_are_one_bar() -> None:
    strips = known("s")
    for reason in ("down", "down", "late"):
        strips.hear(Change(skipped=[make_skipped(reason=reason)]), [])

    assert marks_of(strips) == "smm"


def test_a_range_behind_one_whose_reason_is_not_known_has_the_job_read_again() -> None:
    strips = known("sm")
    strips.hear(Change(skipped=[make_skipped()]), [])

    assert strips.missing() == [PRICES]


def test_a_job_that_changes_while_it_is_read_is_read_again() -> None:
    strips = known()
    strips.of_job.clear()
    strips.begin_reading([PRICES])
    strips.hear(Change(new=[make_run()]), [RunId(1)])
    strips.keep(PRICES, JobStrip(RunStrip(), None))

    assert strips.missing() == [PRICES]


def test_runs_whose_ids_nobody_waited_for_have_their_job_read_again() -> None:
    strips = known("s")
    strips.hear(Change(new=[make_run()]), None)

    assert strips.missing() == [PRICES]


def test_the_end_of_an_unknown_run_changes_nothing() -> None:
    strips = known("s")
    strips.hear(Change(end=[make_end(RunId(77))]), [])

    assert marks_of(strips) == "s"


def test_jitter_makes_no_run_late() -> None:
    assert late_after(make_job(jitter_ms=5_000)) == LATE_MS + 5_000
    assert late_after(None) == LATE_MS
    assert Strips(LiveJobs()).late_ms(JobId("nobody")) == LATE_MS
