"""`spyweb state watch`: show changes as they are committed."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import typer

from spyweb.cli import output
from spyweb.cli.output import Format
from spyweb.cli.state import render
from spyweb.cli.state.change import Pattern
from spyweb.cli.state.options import StateOutput, StatePlace, as_bytes, placed
from spyweb.cli.state.remote import RemoteState
from spyweb.views.jobs import to_json
from spyweb.views.state import ChangeView


@placed
def watch(context: typer.Context, place: StatePlace, pattern: Pattern = "*", form: StateOutput = Format.TABLE) -> None:
    """Show changes as they happen, until Ctrl-C.

    Of all namespaces, unless one is chosen.  Needs a daemon.
    """
    daemon = place.project.need_daemon(", so nothing changes: `spyweb start` starts one")
    timezone = ZoneInfo(place.timezone)

    def begin() -> None:
        output.note(f"watching {place.chosen or 'all namespaces'}: Ctrl-C ends it")

    def show(change: ChangeView) -> None:
        if form is Format.JSON:
            output.show_json_line(to_json(change))
            return
        at = datetime.fromtimestamp(change.at_ms // 1000, tz=UTC).astimezone(timezone)
        output.say(f"{at:%H:%M:%S}.{change.at_ms % 1000:03d} {render.change_line(change)}")

    RemoteState(daemon).watch(place.chosen, as_bytes(pattern), show, begin)
