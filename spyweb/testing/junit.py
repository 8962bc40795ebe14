"""Render a report as JUnit XML, the form that CI systems read.  Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from spyweb.testing.results import CaseResult, Report

NO_NAME = "(its files)"  # of a test case: what failed was to load them
_PLACE = re.compile(r"(?P<file>[^\n:]+\.lua):(?P<line>\d+):")
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def to_junit(report: Report) -> bytes:
    root = Element("testsuites", {"name": "spyweb", **_counts(report.results, report.duration_ms)})
    for title, results in groupby(report.results, key=lambda result: result.suite):
        _add_suite(root, title, list(results))
    indent(root)
    xml: bytes = tostring(root, encoding="utf-8", xml_declaration=True)
    return xml + b"\n"


def _add_suite(root: Element, title: str, results: list[CaseResult]) -> None:
    took_ms = sum(result.duration_ms for result in results)
    suite = SubElement(root, "testsuite", {"name": _clean(title), "skipped": "0", **_counts(results, took_ms)})
    for result in results:
        _add_case(suite, result)


def _counts(results: Sequence[CaseResult], took_ms: float) -> dict[str, str]:
    errors = sum(not each.test for each in results)
    return {
        "tests": str(len(results)),
        "failures": str(sum(not each.passed for each in results) - errors),
        "errors": str(errors),
        "time": _seconds(took_ms),
    }


def _add_case(suite: Element, result: CaseResult) -> None:
    case = SubElement(suite, "testcase", classname=_clean(result.suite), name=_clean(result.test or NO_NAME))
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
