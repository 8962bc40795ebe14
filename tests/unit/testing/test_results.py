from __future__ import annotations

from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from spyweb.testing.results import MOST_LINES, CaseResult, OutputBuffer, Report, report_to_builtins, to_junit
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


def test_every_suite_counts_its_tests_failures_and_errors() -> None:
    root = parsed(PASSED, FAILED, BROKEN)
    assert root.attrib == {"name": "spyweb", "tests": "3", "failures": "1", "errors": "1", "time": "0.020000"}
    assert [(suite.get("name"), suite.get("tests"), suite.get("failures"), suite.get("errors")) for suite in root] == [
        ("shop", "2", "1", "0"),
        ("typo", "1", "0", "1"),
    ]


def test_a_failure_says_what_where_and_what_was_logged() -> None:
    case = parsed(FAILED).find(".//testcase")
    assert case is not None
    assert case.attrib == {
        "classname": "shop", "name": "test_total", "time": "0.012500", "file": "jobs/shop/tests.lua", "line": "7",
    }  # fmt: skip
    failure = case.find("failure")
    assert failure is not None
    assert failure.get("message") == FAILED.reason
    assert failure.text == FAILED.why
    assert case.findtext("system-out") == "info: fetched <3>"


def test_files_that_do_not_load_are_an_error_and_no_failed_test() -> None:
    case = parsed(BROKEN).find(".//testcase")
    assert case is not None
    assert case.get("name") == "(its files)"
    assert case.find("failure") is None
    assert case.find("error") is not None


def test_a_test_that_passed_has_nothing_in_it() -> None:
    case = parsed(PASSED).find(".//testcase")
    assert case is not None
    assert list(case) == []


@given(st.text(), st.text(), st.text())
def test_whatever_a_script_says_the_file_is_xml(name: str, reason: str, logged: str) -> None:
    result = CaseResult(
        suite="a",
        test=f"test_{name}",
        passed=False,
        reason=reason,
        output=[LogLine(level="info", text=logged, at_ms=1)],
    )
    root = parsed(result)
    assert root.get("failures") == "1"
