from __future__ import annotations

from spyweb.testing.results import MOST_LINES, CaseResult, OutputBuffer, Report, report_to_builtins
from spyweb.views.runs import LogLine


def line(text: str) -> LogLine:
    return LogLine(level="info", text=text, at_ms=1)


def test_a_report_counts_what_passed_and_what_failed() -> None:
    report = Report(
        results=[
            CaseResult(suite="a", test="test_x", passed=True),
            CaseResult(suite="a", test="test_y", passed=False),
            CaseResult(suite="b", test="", passed=False),
        ]
    )
    assert (report.passed, report.failed) == (1, 2)
    assert [result.suite for result in report.failures] == ["a", "b"]


def test_why_a_test_failed_is_told_once() -> None:
    short = CaseResult(
        suite="a", test="test_x", passed=False, reason="a.lua:1: no", traceback="stack traceback:\n\ta.lua:1"
    )
    long = CaseResult(
        suite="a", test="test_x", passed=False, reason="a.lua:1: no", traceback="a.lua:1: no\n  left: 1\nstack"
    )
    bare = CaseResult(suite="a", test="test_x", passed=False, reason="timed out")

    assert short.why == "a.lua:1: no\nstack traceback:\n\ta.lua:1"
    assert long.why == "a.lua:1: no\n  left: 1\nstack"
    assert bare.why == "timed out"


def test_in_json_a_suite_that_does_not_load_has_no_test() -> None:
    told = report_to_builtins(
        Report(results=[CaseResult(suite="a", test="", passed=False, reason="no")], duration_ms=1.23456)
    )
    assert told == {
        "passed": 0,
        "failed": 1,
        "duration_ms": 1.235,
        "tests": [
            {
                "suite": "a",
                "test": None,
                "outcome": "failed",
                "duration_ms": 0.0,
                "reason": "no",
                "traceback": "",
                "output": [],
            }
        ],
    }


def test_what_a_test_logs_is_kept_as_far_as_somebody_could_read_it() -> None:
    heard = OutputBuffer()
    for number in range(MOST_LINES + 500):
        heard.add(line(str(number)))

    kept = heard.all()

    assert len(kept) == MOST_LINES + 1
    assert kept[-1].text == "... and 500 lines more"
    assert kept[-2].text == str(MOST_LINES - 1)
