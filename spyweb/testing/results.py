"""The results of tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct, field

from spyweb.views.runs import LogLine, describe_failure

MOST_LINES = 1_000  # of one test that are kept
LOADING = ""  # in place of a test's name: its files did not load


class CaseResult(Struct, frozen=True, kw_only=True):
    """Says how one test ended, or why a suite could not be loaded."""

    suite: str
    test: str
    passed: bool
    duration_ms: float = 0.0
    reason: str = ""  # one line, with file and line of the Lua that raised it
    traceback: str = ""
    output: Sequence[LogLine] = ()  # what it logged and printed

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
    """Convert a report to what JSON has."""
    return {
        "passed": report.passed,
        "failed": report.failed,
        "duration_ms": round(report.duration_ms, 3),
        "tests": [_result_to_builtins(result) for result in report.results],
    }


def _result_to_builtins(result: CaseResult) -> Mapping[str, object]:
    return {
        "suite": result.suite,
        "test": result.test or None,
        "outcome": "passed" if result.passed else "failed",
        "duration_ms": round(result.duration_ms, 3),
        "reason": result.reason,
        "traceback": result.traceback,
        "output": list(result.output),
    }


class OutputBuffer(Struct):
    """Collects what one test logs and prints, up to as much as somebody could read."""

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
