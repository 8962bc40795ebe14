"""`spyweb check` finds every problem in the project's files, `spyweb doctor` examines its machine too."""

from __future__ import annotations

import asyncio
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from spyweb.checks.settings import CheckKind, script_of
from spyweb.cli import output
from spyweb.cli.options import Output, root_of
from spyweb.cli.output import Format
from spyweb.clock import RealClock
from spyweb.errors import ExitCode, Problem

if TYPE_CHECKING:
    from spyweb.daemon.uses import UseView


class CheckScope(StrEnum):
    CONFIG = "config"


Show = Annotated[CheckKind | None, typer.Option("--show", help="Print the script of a kind of check.")]
Permissions = Annotated[bool, typer.Option("--permissions", help="Show the permissions that each job needs and has.")]


def check(
    context: typer.Context,
    what: Annotated[CheckScope | None, typer.Argument(help="`check config` is the same as `check`.")] = None,
    permissions: Permissions = False,
    show: Show = None,
    form: Output = Format.TABLE,
) -> ExitCode:
    """Find the problems in the project's files.

    Lists every problem in every file, with file, line and reason.  Runs no job.  --permissions compares what each job's
    source seems to need with what it may use.  --show prints a check's script, to copy into jobs/ and go on from.
    """
    if show is not None:
        path, script = script_of(show)
        output.tell(form, script.decode(), {"path": path, "script": script.decode()})
        return ExitCode.OK
    output.log_only_errors()
    if permissions:
        from spyweb.daemon.uses import view_uses  # no other command needs the ops

        views = view_uses(root_of(context))
        output.show_list(form, views, _use_row, empty="no job needs a permission")
        return ExitCode.FAILED if any(view.refused for view in views) else ExitCode.OK
    from spyweb.daemon.check import check_project  # no other command needs the engine

    problems = asyncio.run(check_project(root_of(context)))
    show_problems(problems, form)
    return ExitCode.FAILED if any(not problem.is_warning for problem in problems) else ExitCode.OK


def doctor(context: typer.Context, form: Output = Format.TABLE) -> ExitCode:
    """Examine the project and its machine, and say what to do.

    Works with a daemon and without, and changes nothing.  Exit code 1 when something is wrong.  docs/operations.md has
    more about each code.
    """
    output.log_only_errors()
    from spyweb.daemon.doctor import CHECKS, examine  # no other command needs the engine

    with output.meter("examining", len(CHECKS)) as meter:
        found = list(examine(root_of(context), RealClock(), meter.advance))
    output.show_list(
        form, found, lambda each: {"": each.status, "part": each.part, "found": each.text}, empty="nothing"
    )
    remedies = {each.code: each.remedy for each in found if each.code}
    if remedies and form is Format.TABLE:
        output.say("")
        output.show_fields([*remedies.items()])
    return ExitCode.FAILED if any(each.status == "error" for each in found) else ExitCode.OK


def _use_row(view: UseView) -> dict[str, str]:
    return {
        "job": view.job,
        "key": view.key,
        "functions": ", ".join(view.functions),
        "literals": ", ".join(f"{item} (refused)" if item in view.refused else item for item in view.literals),
        "may": ", ".join(view.may) or "nothing",
        "own settings": "" if view.own is None else ", ".join(view.own) or "nothing",
    }


def show_problems(problems: list[Problem], form: Format) -> None:
    def row(problem: Problem) -> dict[str, str]:
        return {
            "file": problem.file,
            "line": "" if problem.line is None else str(problem.line),
            "key": problem.key or "",
            "reason": f"warning: {problem.reason}" if problem.is_warning else problem.reason,
        }

    output.show_list(form, problems, row, empty="no problems found")
