"""The outbox: messages on their way out, and those that were given up."""

from __future__ import annotations

from collections.abc import Mapping

from aiohttp import web
from msgspec import Struct

from spyweb.model import JobId
from spyweb.outbox.sender import OutboxSender
from spyweb.subjects.outbox.views import MessageView, messages_of
from spyweb.web.access.principal import Right
from spyweb.web.api.query import Natural, visible
from spyweb.web.pages.page import Action, Asked, DashboardPage, PageMissing, PagePart, Question, Shown, lead_to

MESSAGES = 50


class OutboxQuery(Struct, frozen=True):
    """The messages of one job, or of all, from where on."""

    job: str = ""
    before: Natural = 0  # the id of a message: only older ones


async def values_of(asked: Asked, query: OutboxQuery) -> Mapping[str, object]:
    """Gather a page of messages that somebody may see."""
    job = JobId(query.job) if query.job else None
    found = await visible(
        asked.request,
        lambda most, before: messages_of(asked.services[OutboxSender], job, limit=most, before=before),
        lambda view: (view.job_id, view.id),
        limit=MESSAGES + 1,
        before=query.before or None,
    )
    shown, has_more = found[:MESSAGES], len(found) > MESSAGES
    return {
        "counts": None if asked.principal.jobs else await asked.services[OutboxSender].counts(),
        "messages": shown,
        "dead": sum(message.state == "dead" for message in shown),
        "job": query.job,
        **asked.places(query, shown[-1].id if has_more else 0),
        "may_all": Right.RUN in asked.principal.rights and not asked.principal.jobs,
    }


@DashboardPage(
    "outbox", "outbox.html", place="outbox", of_job=True, parts={"messages": PagePart("messages.html", ("outbox",))}
)
async def show_outbox(asked: Asked) -> Shown:
    """Show the messages that have not arrived."""
    query = asked.query(OutboxQuery)
    return Shown(title="Outbox", values=await values_of(asked, query), is_live=not query.before)


@Action("outbox/{id}/retry", right=Right.RUN, of_job=True)
async def retry_message(asked: Asked) -> web.Response:
    """Send a message again, now."""
    await asked.services[OutboxSender].retry((await _message(asked)).id)
    return lead_to(asked.back())


async def ask_before_all(asked: Asked) -> Question:
    counts = await asked.services[OutboxSender].counts()
    return Question(
        title="Send all messages again?",
        words=f"{counts.dead + counts.waiting:,} in all, those that were given up too. Receivers that have had one "
        "already may get it twice.",
        button="Send all",
    )


@Action("outbox/retry", right=Right.RUN, question=ask_before_all)
async def retry_all(asked: Asked) -> web.Response:
    """Send all messages again, now."""
    await asked.services[OutboxSender].retry(None)
    return lead_to(asked.back())


async def _message(asked: Asked) -> MessageView:
    """Return the message in the path, if whoever asks may see it."""
    text = asked.request.match_info["id"]
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 16 else 0
    found = await messages_of(asked.services[OutboxSender], None, limit=1, before=number + 1)
    if not found or found[0].id != number or not asked.principal.may_see(found[0].job_id):
        raise PageMissing("There is no such message: it may have arrived meanwhile")
    return found[0]
