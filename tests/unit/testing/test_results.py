from __future__ import annotations

from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spyweb.testing.results import MOST_LINES, CaseResult, OutputBuffer, Report, report_to_builtins, to_junit
from spyweb.views.runs import LogLine


@pytest.mark.parametrize(
    ("reason", "traceback", "why"),
    [
        ("a.lua:1: no", "stack traceback:\n\ta.lua:1", "a.lua:1: no\nstack traceback:\n\ta.lua:1"),
        ("a.lua:1: no", "a.lua:1: no\n  left: 1\nstack", "a.lua:1: no\n  left: 1\nstack"),
        ("timed out", "", "timed out"),
    ],
)
def test_why_a_test_failed_is_told_once(reason: str, traceback: str, why: str) -> None:
    assert CaseResult(suite="a", test="test_x", passed=False, reason=reason, traceback=traceback).why == why


def test_in_json_a_suite_that_does_not_load_has_no_test() -> None:
    told = report_to_builtins(Report(results=[BROKEN], duration_ms=1.23456))
    case: dict[str, object] = {"suite": "typo", "test": None, "outcome": "failed", "reason": BROKEN.reason}
    case |= {"duration_ms": 0.0, "traceback": "", "output": []}
    assert told == {"passed": 0, "failed": 1, "duration_ms": 1.235, "tests": [case]}


def test_what_a_test_logs_is_kept_as_far_as_somebody_could_read_it() -> None:
    heard = OutputBuffer()
    for number in range(MOST_LINES + 500):
        heard.add(LogLine(level="info", text=str(number), at_ms=1))
    kept = heard.all()
    assert len(kept) == MOST_LINES + 1
    assert kept[-1].text == "... and 500 lines more"
    assert kept[-2].text == str(MOST_LINES - 1)


FAILED = CaseResult(
    suite="shop",
    test="test_total",
    passed=False,
    duration_ms=12.5,
    reason="jobs/shop/tests.lua:7: 3 is not equal to 4",
    traceback="stack traceback:\n\tjobs/shop/tests.lua:7: in function 'test_total'",
    output=[LogLine(level="info", text="fetched <3>", at_ms=1)],
)
PASSED = CaseResult(suite="shop", test="test_price", passed=True, duration_ms=2)
BROKEN = CaseResult(suite="typo", test="", passed=False, reason="jobs/typo.lua:1: syntax error near '+'")


def parsed(*results: CaseResult) -> ElementTree.Element:
    return ElementTree.fromstring(to_junit(Report(results=results, duration_ms=20)))


def test_a_file_for_ci_counts_and_says_what_where_and_what_was_logged() -> None:
    report = Report(results=[PASSED, FAILED, BROKEN])
    assert (report.passed, report.failed, report.failures) == (1, 2, [FAILED, BROKEN])
    root = parsed(PASSED, FAILED, BROKEN)
    assert root.attrib == {"name": "spyweb", "tests": "3", "failures": "1", "errors": "1", "time": "0.020000"}
    assert [(suite.get("name"), suite.get("tests"), suite.get("failures"), suite.get("errors")) for suite in root] == [
        ("shop", "2", "1", "0"),
        ("typo", "1", "0", "1"),
    ]
    passed, failed, broken = root.iter("testcase")
    assert list(passed) == []
    assert failed.attrib == {
        "classname": "shop", "name": "test_total", "time": "0.012500", "file": "jobs/shop/tests.lua", "line": "7",
    }  # fmt: skip
    assert [(each.tag, each.get("message"), each.text) for each in failed] == [
        ("failure", FAILED.reason, FAILED.why),
        ("system-out", None, "info: fetched <3>"),
    ]
    assert (broken.get("name"), [each.tag for each in broken]) == ("(its files)", ["error"])


@given(st.text(), st.text(), st.text())
def test_whatever_a_script_says_the_file_is_xml(name: str, reason: str, logged: str) -> None:
    output = [LogLine(level="info", text=logged, at_ms=1)]
    root = parsed(CaseResult(suite="a", test=f"test_{name}", passed=False, reason=reason, output=output))
    assert root.get("failures") == "1"
