"""How a person reads what is to come and what was."""

from __future__ import annotations

import time
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from spyweb.cli import output
from spyweb.cli.output import Format
from spyweb.events.happenings import LONGEST_LINE, RunHappened, line_logged
from spyweb.logs.job import stamped
from spyweb.model import JobId, Outcome, RunId
from spyweb.subjects.jobs import commands
from spyweb.subjects.jobs.commands import LogFollower, describe_last, failure_line, show_jobs
from spyweb.views.jobs import JobState, JobView
from spyweb.views.runs import LastRun, last_run
from tests.fakes.daemon_service import NOW_MS, PRICES, make_run
from tests.fakes.terminal import open_terminal, shown_lines


def make_view(name: str, last: LastRun | None = None, **more: Any) -> JobView:
    view = JobView(
        id=JobId(name),
        name=name,
        enabled=True,
        state=JobState.IDLE,
        schedule="every 10s",
        path=f"jobs/{name}.lua",
        folder=f"jobs/{name}",
        next_due_ms=NOW_MS + 4_000,
        last=last,
    )
    return replace(view, **more)


def last_of(**changes: Any) -> LastRun:
    found = last_run(make_run(**changes))
    assert found
    return found


CRON = "cron 30 3 * * mon-fri (Europe/Berlin)"
BROKEN = "jobs/typo.lua:1: unexpected symbol near 'x', and much more of it"
VIEWS = [
    make_view("check_api", last_of(result="open: asking again in 50 s"), description="Asks an address"),
    make_view("nightly", last_of(outcome=Outcome.FAILED, reason="jobs/nightly.lua:3: no disk"), schedule=CRON),
    make_view("typo", state=JobState.BROKEN, schedule="", next_due_ms=None, error=BROKEN),
]


def test_jobs_fit_80_columns_one_line_each(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = open_terminal(monkeypatch, 80)
    show_jobs(Format.TABLE, VIEWS, "Europe/Berlin", NOW_MS)
    lines = shown_lines(terminal)
    assert max(map(len, lines)) <= 80
    assert len(lines) == 4
    assert lines[0].split() == ["job", "state", "schedule", "next", "last", "note"]
    assert lines[2].split()[:3] == ["nightly", "failing", "cron"]
    assert "(Europe" not in terminal.getvalue()


@pytest.mark.parametrize(
    ("changes", "note"),
    [
        ({"http_status": 404, "items_found": 0, "note": "not as expected: http status 404"}, "not as expected: http"),
        ({"storage_errors": 1, "result": "7"}, "1 storage error; 7"),
        ({"outcome": Outcome.FAILED, "reason": "no", "items_found": 2, "items_new": 1}, "no; 2 items, 1 new"),
        ({}, ""),
    ],
)
def test_what_asks_for_attention_goes_first(changes: dict[str, object], note: str) -> None:
    assert describe_last(last_of(**changes)).startswith(note)


def test_a_check_says_what_it_has_measured() -> None:
    assert describe_last(last_of(result='{"latency":85,"status":200}'), is_check=True) == "85 ms, 200"


def test_what_is_late_is_due_now() -> None:
    assert output.until(-10) == output.until(0) == "now"
    assert output.until(61_000) == "in 1m 1s"


class FollowedProject:
    """A daemon that tells of lines, once for each start of it, and the file that has them."""

    is_elsewhere = False

    def __init__(self, *starts: list[tuple[str, bytes]]) -> None:
        self.starts = list(starts)

    def need_daemon(self, _hint: str) -> FollowedProject:
        if not self.starts:
            raise KeyboardInterrupt
        return self

    def events(self, **_wish: str) -> list[tuple[str, bytes]]:
        return [("", b""), *self.starts.pop(0)]

    def cut_off(self, before: str) -> str:
        return f"the daemon ended before {before}"


def test_a_line_of_a_log_is_followed_once_however_long_and_whatever_is_in_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = ["one", "two\u2028halves", "x" * (LONGEST_LINE + 9)]
    told = [line_logged(PRICES, "info", text, NOW_MS, None) for text in texts]
    file = [stamped(NOW_MS, "info", text).decode().rstrip("\n") for text in texts]
    monkeypatch.setattr(commands, "log_lines", lambda *_: file)
    monkeypatch.setattr(time, "sleep", lambda _: None)
    starts = [[("log", msgspec.json.encode(each)) for each in told], []]
    with pytest.raises(KeyboardInterrupt):
        LogFollower(FollowedProject(*starts), make_view("prices"), Format.TABLE).follow()  # type: ignore[arg-type]
    printed = capsys.readouterr().out.rstrip("\n").split("\n")
    assert [line[:60] for line in printed] == [line[:60] for line in file]


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_line_of_a_log_reads_the_same_from_its_run_and_from_its_file(
    is_terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal = open_terminal(monkeypatch) if is_terminal else None
    file = [stamped(NOW_MS, level, "full").decode().rstrip("\n") for level in ("warn", "print")]
    monkeypatch.setattr(commands, "log_lines", lambda *_: file)
    LogFollower(FollowedProject(), make_view("prices"), Format.TABLE).show_file(2)  # type: ignore[arg-type]
    for level in ("warn", "print"):
        output.show_log_line(output.log_stamp(NOW_MS), level, "full")
    lines = shown_lines(terminal) if terminal else capsys.readouterr().out.splitlines()
    assert lines[:2] == lines[2:]
    assert lines[0].endswith(" warning full" if is_terminal else "Z WARN full")


def test_a_reason_of_several_lines_can_not_pass_for_lines_of_the_log() -> None:
    run = RunHappened(
        what="ended", job=PRICES, run=RunId(7), outcome=Outcome.FAILED, reason="a\n2026 INFO b", ended_ms=0
    )
    assert failure_line(run) == "1970-01-01T00:00:00.000Z ERROR run 7 failed: a 2026 INFO b"
