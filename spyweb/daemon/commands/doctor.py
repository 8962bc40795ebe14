"""`spyweb doctor`: examine the project and its machine, and say what to do."""

from __future__ import annotations

import typer

from spyweb.cli import output
from spyweb.cli.options import Output, root_of
from spyweb.cli.output import Format
from spyweb.clock import RealClock
from spyweb.errors import ExitCode


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
