"""`spyweb outbox`: list webhooks and notifications that have not arrived, and retry them."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from spyweb.cli import output
from spyweb.cli.client import DaemonClient, with_query
from spyweb.cli.options import MaybeJob, Output, project_of
from spyweb.cli.output import Format
from spyweb.cli.project import Backend
from spyweb.errors import Refused
from spyweb.model import JobId
from spyweb.store.model.messages import QueuedMessage
from spyweb.subjects.outbox.views import MessageView, view_message
from spyweb.views.jobs import find_job

ALL = "all"
HEADER = ("id", "job", "since", "by", "to", "state", "attempts", "next", "error")


def outbox(
    context: typer.Context,
    job: MaybeJob = None,
    count: Annotated[int, typer.Option("-n", metavar="N", min=1, max=1_000, help="How many.")] = 20,
    retry: Annotated[
        str | None, typer.Option(metavar="ID", help='Send this message now, or "all"; the dead ones too.')
    ] = None,
    form: Output = Format.TABLE,
) -> None:
    """List messages that have not arrived, newest first.

    Those that wait for their next attempt, and those that were given up.
    """
    project = project_of(context)
    source = project.backend()
    if retry is None:
        chosen = (find_job(source.jobs(), job) or JobId(job)) if job else None  # a deleted job may still have some
        found, row = messages(source, chosen, count), partial(_row, project.clock.now_ms())
        output.show_list(form, found, HEADER, row, empty="everything has arrived", cut=("error", "to", "job"))
    else:
        _retry(source, retry, form)


def messages(source: Backend, job: JobId | None, limit: int) -> list[MessageView]:
    if isinstance(source, DaemonClient):
        return source.ask("GET", with_query("/api/outbox", job=job, limit=limit), list[MessageView])
    found: list[QueuedMessage] = source.read(lambda store: store.outbox.unsent(job, limit), [])
    return [view_message(message) for message in found]


def retry_messages(source: Backend, message: int | None) -> list[int]:
    """Send this message, or all, again, or mark them for the next daemon, which does so as it starts; return their
    ids."""
    if isinstance(source, DaemonClient):
        return source.ask("POST", with_query("/api/outbox/retry", id=message), dict[str, list[int]])["retried"]
    return source.write(lambda store: store.outbox.retry(message))


def _retry(source: Backend, which: str, form: Format) -> None:
    if which != ALL and not (which.isascii() and which.isdigit() and 0 < int(which) < 1 << 63):
        raise Refused(f"--retry {which[:80]!r}: expected a message's id, or {ALL}")
    retried = retry_messages(source, None if which == ALL else int(which))
    if not retried and which != ALL:
        raise Refused(f"there is no message {which}: `spyweb outbox` lists them")
    line = "1 message is sent again" if len(retried) == 1 else f"{len(retried)} messages are sent again"
    output.tell(form, line, {"retried": retried})


def _row(now_ms: int, message: MessageView) -> tuple[str, ...]:
    return (
        str(message.id),
        message.job_id,
        f"{output.rounded(now_ms - message.created_ms)} ago",
        message.channel,
        message.to,
        message.state,
        str(message.attempts),
        "" if message.next_ms is None else output.until(message.next_ms - now_ms),
        message.error,
    )
