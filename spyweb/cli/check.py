"""`spyweb check`: everything that is wrong in the project's files."""

from __future__ import annotations

import asyncio
from enum import StrEnum
from typing import Annotated

import typer

from spyweb.cli import output
from spyweb.cli.options import Output, root_of
from spyweb.cli.output import Format
from spyweb.errors import ExitCode, Problem


class CheckScope(StrEnum):
    CONFIG = "config"


def check(
    context: typer.Context,
    what: Annotated[CheckScope | None, typer.Argument(help="`check config` is the same as `check`.")] = None,
    form: Output = Format.TABLE,
) -> ExitCode:
    """Find what is wrong in the project's files.

    Every problem in every file, with file, line and reason.  Runs no job.
    """
    from spyweb.daemon.check import check_project  # every other command does without the engine

    output.log_only_errors()
    problems = asyncio.run(check_project(root_of(context)))
    show_problems(problems, form)
    return ExitCode.FAILED if any(not problem.is_warning for problem in problems) else ExitCode.OK


def show_problems(problems: list[Problem], form: Format) -> None:
    if form is Format.JSON:
        output.show_json(problems)
    else:
        rows = [
            (problem.file, "" if problem.line is None else str(problem.line), problem.key or "", shown_reason(problem))
            for problem in problems
        ]
        output.show_table(("file", "line", "key", "reason"), rows, empty="no problems found")


def shown_reason(problem: Problem) -> str:
    return f"warning: {problem.reason}" if problem.is_warning else problem.reason
