"""`spyweb outbox`: list undelivered webhooks and notifications, and retry them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from spyweb.cli import output
from spyweb.cli.client import DaemonClient, with_query
from spyweb.cli.options import MaybeJob, Output, project_of
from spyweb.cli.output import Format
from spyweb.cli.project import Backend, answer_of, found_of
from spyweb.errors import Refused
from spyweb.model import JobId
from spyweb.subjects.outbox.views import MessageView, view_message

if TYPE_CHECKING:
    from spyweb.store.sqlite.store import Store

ALL = "all"


def outbox(
    context: typer.Context,
    job: MaybeJob = None,
    count: Annotated[int, typer.Option("-n", metavar="N", min=1, max=1_000, help="How many.")] = 20,
    retry: Annotated[
        str | None, typer.Option(metavar="ID", help='Send this message now, or "all", those given up too.')
    ] = None,
    form: Output = Format.TABLE,
) -> None:
    """List undelivered messages, newest first.

    Messages that wait for their next attempt, and messages that were given up.
    """
    project = project_of(context)
    source, now_ms = project.backend(), project.clock.now_ms()
    if retry is not None:
        _retry(source, retry, form)
        return

    def row(message: MessageView) -> dict[str, str]:
        return {
            "id": str(message.id),
            "job": message.job_id,
            "since": f"{output.rounded(now_ms - message.created_ms)} ago",
            "by": message.channel,
            "to": message.to,
            "state": message.state,
            "attempts": str(message.attempts),
            "next": "" if message.next_ms is None else output.until(message.next_ms - now_ms),
            "error": message.error,
        }

    def messages(chosen: JobId | None) -> list[MessageView]:
        async def ask(store: Store) -> list[MessageView]:
            return [view_message(message) for message in await store.outbox.unsent(chosen, count)]

        return answer_of(source, with_query("/api/outbox", job=chosen, limit=count), list[MessageView], ask, [])

    found = found_of(source, job, messages)
    output.show_list(form, found, row, empty="no undelivered messages", cut=("error", "to", "job"))


def _retry(source: Backend, which: str, form: Format) -> None:
    """Send a message, or all, again; without a daemon mark them, and the next daemon sends them as it starts."""
    if which != ALL and not (which.isascii() and which.isdigit() and 0 < int(which) < 1 << 63):
        raise Refused(f"--retry {which[:80]!r}: expected a message's id, or {ALL}")
    message = None if which == ALL else int(which)
    if isinstance(source, DaemonClient):
        retried = source.ask("POST", with_query("/api/outbox/retry", id=message), dict[str, list[int]])["retried"]
    else:
        retried = source.write(lambda store: store.outbox.retry(message))
    if not retried and which != ALL:
        raise Refused(f"there is no message {which}: `spyweb outbox` lists them")
    line = "1 message is sent again" if len(retried) == 1 else f"{len(retried)} messages are sent again"
    output.tell(form, line, {"retried": retried})
