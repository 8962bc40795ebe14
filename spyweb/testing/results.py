"""The results of tests."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import groupby
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from msgspec import Struct, field

from spyweb.views.runs import LogLine, describe_failure

MOST_LINES = 1_000  # of one test that are kept
LOADING = ""  # in place of a test's name: its files did not load


class CaseResult(Struct, frozen=True, kw_only=True):
    """The end of one test, or why a suite could not be loaded."""

    suite: str
    test: str
    passed: bool
    duration_ms: float = 0.0
    reason: str = ""  # one line, with file and line of the Lua that raised it
    traceback: str = ""
    output: Sequence[LogLine] = ()  # its log lines and printed text

    @property
    def why(self) -> str:
        return describe_failure(self.reason, self.traceback)


class Report(Struct, frozen=True, kw_only=True):
    results: Sequence[CaseResult]  # by suite, then by name
    duration_ms: float = 0.0
    is_whole: bool = True  # not interrupted

    @property
    def failures(self) -> list[CaseResult]:
        return [result for result in self.results if not result.passed]

    @property
    def failed(self) -> int:
        return len(self.failures)

    @property
    def passed(self) -> int:
        return len(self.results) - self.failed


def report_to_builtins(report: Report) -> Mapping[str, object]:
    return {
        "passed": report.passed,
        "failed": report.failed,
        "duration_ms": round(report.duration_ms, 3),
        "tests": [
            {
                "suite": result.suite,
                "test": result.test or None,
                "outcome": "passed" if result.passed else "failed",
                "duration_ms": round(result.duration_ms, 3),
                "reason": result.reason,
                "traceback": result.traceback,
                "output": list(result.output),
            }
            for result in report.results
        ],
    }


class OutputBuffer(Struct):
    """Collects the log lines and printed text of one test, MOST_LINES at most."""

    lines: list[LogLine] = field(default_factory=list)
    cut: int = 0

    def add(self, line: LogLine) -> None:
        if len(self.lines) < MOST_LINES:
            self.lines.append(line)
        else:
            self.cut += 1

    def all(self) -> tuple[LogLine, ...]:
        if not self.cut:
            return tuple(self.lines)
        end = LogLine(level="warn", text=f"... and {self.cut:,} lines more", at_ms=self.lines[-1].at_ms)
        return (*self.lines, end)


_PLACE = re.compile(r"(?P<file>[^\n:]+\.lua):(?P<line>\d+):")
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def to_junit(report: Report) -> bytes:
    root = Element("testsuites", {"name": "spyweb", **_counts(report.results, report.duration_ms)})
    for title, group in groupby(report.results, key=lambda result: result.suite):
        results = list(group)
        counts = _counts(results, sum(result.duration_ms for result in results))
        suite = SubElement(root, "testsuite", {"name": _clean(title), "skipped": "0", **counts})
        for result in results:
            _add_case(suite, result)
    indent(root)
    xml: bytes = tostring(root, encoding="utf-8", xml_declaration=True)
    return xml + b"\n"


def _counts(results: Sequence[CaseResult], took_ms: float) -> dict[str, str]:
    errors = sum(not each.test for each in results)
    return {
        "tests": str(len(results)),
        "failures": str(sum(not each.passed for each in results) - errors),
        "errors": str(errors),
        "time": _seconds(took_ms),
    }


def _add_case(suite: Element, result: CaseResult) -> None:
    case = SubElement(suite, "testcase", classname=_clean(result.suite), name=_clean(result.test or "(its files)"))
    case.set("time", _seconds(result.duration_ms))
    if not result.passed:
        if place := _PLACE.match(result.reason):
            case.set("file", _clean(place["file"]))
            case.set("line", place["line"])
        failure = SubElement(case, "failure" if result.test else "error", message=_clean(result.reason))
        failure.text = _clean(result.why)
    if result.output:
        SubElement(case, "system-out").text = _clean("\n".join(f"{each.level}: {each.text}" for each in result.output))


def _seconds(ms: float) -> str:
    return f"{ms / 1000:.6f}"


def _clean(text: str) -> str:
    """Escape what XML can't hold."""
    return _NOT_XML.sub(lambda found: ascii(found[0])[1:-1], text)
