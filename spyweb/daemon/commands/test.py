"""`spyweb test`: run the project's own tests."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer
from msgspec import Struct, field

from spyweb.cli import output
from spyweb.cli.options import Output, complete_job, root_of
from spyweb.cli.output import Format, Meter
from spyweb.errors import ExitCode, NoAccess
from spyweb.testing.results import CaseResult, Report, report_to_builtins

SERVER = "server"


def complete_suite(context: typer.Context, incomplete: str) -> list[str]:
    return [*complete_job(context, incomplete), *([SERVER] if SERVER.startswith(incomplete) else [])]


Suite = Annotated[
    str | None,
    typer.Argument(metavar="[JOB|server]", help="Only tests of this job or the server.", autocompletion=complete_suite),
]
Pattern = Annotated[str, typer.Argument(metavar="[PATTERN]", help="Only tests with this in their name.")]
Virtual = Annotated[bool, typer.Option("--virtual-time", help="Let sleep end at once and advance the clock.")]
AllowExec = Annotated[bool, typer.Option("--allow-exec", help="Let tests run the commands that their job may run.")]
Junit = Annotated[Path | None, typer.Option(metavar="FILE", help="Write JUnit XML to this file, for CI.")]


def lua_tests(  # noqa: PLR0913 - one for each option
    context: typer.Context,
    job: Suite = None,
    pattern: Pattern = "",
    virtual_time: Virtual = False,
    allow_exec: AllowExec = False,
    junit: Junit = None,
    form: Output = Format.TABLE,
) -> ExitCode:
    """Run the tests of jobs and of the server.

    A test is a global function test_... of their Lua files.  Each runs in its own VM with its own database, also the
    tests of disabled jobs.
    """
    from spyweb.daemon.testing import Selection, run_tests  # no other command needs the engine

    output.log_only_errors()
    selection = Selection(job=job, pattern=pattern, virtual_time=virtual_time, allow_exec=allow_exec)
    with output.meter("testing") as meter, ended_as_by_ctrl_c():
        screen = SuiteScreen(meter=meter, is_silent=form is Format.JSON)
        try:
            report = asyncio.run(run_tests(root_of(context), selection, screen))
        except KeyboardInterrupt:
            report = Report(results=screen.seen, is_whole=False)
    try:
        if junit:
            write_junit(junit, report)
    finally:  # also when that file can't be written: otherwise nobody would see the failures
        show_report(report, form)
    return code_for(report)


@contextmanager
def ended_as_by_ctrl_c() -> Iterator[None]:
    """Make SIGTERM, which CI sends at its time limit, clean up like Ctrl-C."""
    before = signal.signal(signal.SIGTERM, as_ctrl_c)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def as_ctrl_c(number: int, frame: FrameType | None) -> None:
    """Cancel the running tests, as asyncio does at Ctrl-C: an exception could strike any line of any task."""
    handler = signal.getsignal(signal.SIGINT)
    (handler if callable(handler) else signal.default_int_handler)(number, frame)


def code_for(report: Report) -> ExitCode:
    if not report.is_whole:
        return ExitCode.INTERRUPTED
    return ExitCode.FAILED if report.failed else ExitCode.OK


class SuiteScreen(Struct, kw_only=True):
    """Prints a line for each test as it ends."""

    meter: Meter
    is_silent: bool = False
    seen: list[CaseResult] = field(default_factory=list)

    def found(self, suite: str, tests: int) -> None:
        self.meter.expect(tests)

    def ended(self, result: CaseResult) -> None:
        self.seen.append(result)
        self.meter.advance()
        if not self.is_silent:
            took = f" ({_shown_duration(result.duration_ms)})" if result.test else ""
            output.show_verdict("ok" if result.passed else "failed", f"{title_of(result)}{took}")


def title_of(result: CaseResult) -> str:
    return f"{result.suite}: {result.test}" if result.test else f"{result.suite} does not load"


def show_report(report: Report, form: Format) -> None:
    if form is Format.JSON:
        output.show_json(report_to_builtins(report))
        return
    for result in report.failures:
        output.say(f"\n---- {title_of(result)} ----\n{result.why}")
        for line in result.output:
            output.say(f"{line.level}: {line.text}")
    word = "FAILED" if report.failed else "ok"
    end = f"finished in {_shown_duration(report.duration_ms)}" if report.is_whole else "interrupted"
    output.say(f"\ntest result: {word}. {report.passed} passed; {report.failed} failed; {end}")


def write_junit(path: Path, report: Report) -> None:
    from spyweb.testing.results import to_junit  # only where somebody wants it

    try:
        path.write_bytes(to_junit(report))
    except OSError as error:
        raise NoAccess(f"{path}: {error.strerror}") from error


def _shown_duration(ms: float) -> str:
    return f"{ms:.1f} ms" if ms < 1000 else f"{ms / 1000:.2f} s"
