"""The outbox page: messages that wait to be delivered, and messages that were given up."""

from __future__ import annotations

from aiohttp import web

from spyweb.outbox.sender import OutboxSender
from spyweb.subjects.outbox.views import messages_of
from spyweb.web.access.principal import Right
from spyweb.web.api.query import MOST, ListQuery, visible, whole_number
from spyweb.web.pages.page import Action, Asked, DashboardPage, PageMissing, PagePart, Question, Shown, lead_to

MESSAGES = 50


@DashboardPage(
    "outbox", "outbox.html", place="outbox", of_job=True, parts={"messages": PagePart("messages.html", ("outbox",))}
)
async def show_outbox(asked: Asked) -> Shown:
    """Show the undelivered messages."""
    query, outbox = asked.query(ListQuery), asked.services[OutboxSender]
    job = asked.job_of_list(query.job)
    found = await visible(
        asked.request,
        lambda most, before: messages_of(outbox, job, limit=most, before=before),
        lambda view: (view.job_id, view.id),
        limit=MESSAGES + 1,
        before=query.before or None,
    )
    shown, has_more = found[:MESSAGES], len(found) > MESSAGES
    values = {
        "counts": None if asked.principal.jobs else await outbox.counts(),
        "messages": shown,
        "dead": sum(message.state == "dead" for message in shown),
        "job": query.job,
        "name_of": asked.name_of,
        **asked.places(query, shown[-1].id if has_more else 0),
        "may_all": Right.RUN in asked.principal.rights and not asked.principal.jobs,
    }
    return Shown(title="Outbox", values=values, is_live=not query.before)


@Action("outbox/{id}/retry", right=Right.RUN, of_job=True)
async def retry_message(asked: Asked) -> web.Response:
    """Send a message again, now."""
    outbox, number = asked.services[OutboxSender], whole_number(asked.request.match_info["id"]) or 0
    found = await messages_of(outbox, None, limit=1, before=min(number + 1, MOST))
    if not found or found[0].id != number or not asked.principal.may_see(found[0].job_id):
        raise PageMissing("There is no such message: it may have been delivered meanwhile")
    await outbox.retry(number)
    return lead_to(asked.back())


async def ask_before_all(asked: Asked) -> Question:
    counts = await asked.services[OutboxSender].counts()
    return Question(
        title="Send all messages again?",
        words=f"{counts.dead + counts.waiting:,} in all, those that were given up too. A receiver that already has a "
        "message may get it twice.",
        button="Send all",
    )


@Action("outbox/retry", right=Right.RUN, question=ask_before_all)
async def retry_all(asked: Asked) -> web.Response:
    """Send all messages again, now."""
    await asked.services[OutboxSender].retry(None)
    return lead_to(asked.back())
