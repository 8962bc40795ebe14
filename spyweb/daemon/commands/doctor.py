"""`spyweb doctor`: examine the project and its machine, and say what to do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from spyweb.cli import output
from spyweb.cli.options import Output, root_of
from spyweb.cli.output import Format
from spyweb.clock import RealClock
from spyweb.errors import ExitCode

if TYPE_CHECKING:
    from spyweb.daemon.doctor import Finding


def doctor(context: typer.Context, form: Output = Format.TABLE) -> ExitCode:
    """Examine the project and its machine, and say what to do.

    Works with a daemon and without, and changes nothing.  Exit code 1 when something is wrong.  docs/operations.md has
    more about each code.
    """
    output.log_only_errors()
    from spyweb.daemon.doctor import CHECKS, Status, examine  # no other command needs the engine

    with output.meter("examining", len(CHECKS)) as meter:
        found = list(examine(root_of(context), RealClock(), meter.advance))
    if form is Format.JSON:
        output.show_json(found)
    else:
        _show(found)
    return ExitCode.FAILED if any(each.status is Status.ERROR for each in found) else ExitCode.OK


def _show(found: Sequence[Finding]) -> None:
    rows = [[each.status.value, each.part, each.text] for each in found]
    output.show_table(["", "part", "found"], rows, empty="")
    remedies = {each.code: each.remedy for each in found if each.code}
    if remedies:
        output.say("")
        output.show_fields([*remedies.items()])
