"""Handlers for messages that have not arrived: list them, and retry them."""

from __future__ import annotations

from typing import Annotated

from aiohttp import web
from msgspec import Meta, Struct

from spyweb.model import JobId
from spyweb.views.outbox import MessagesRetried, MessageView
from spyweb.web.answer import json_answer, page_answer
from spyweb.web.api.query import Natural, check_may_see, query_of, visible
from spyweb.web.api.route import SERVICE, Right, Route

MAX_LIMIT = 1_000


class MessagesQuery(Struct, frozen=True):
    """How many messages, of which job."""

    job: str | None = None
    limit: Annotated[int, Meta(ge=1, le=MAX_LIMIT)] = 30
    before: Annotated[Natural, Meta(description="the id of a message: only older ones")] = 0


class RetryQuery(Struct, frozen=True):
    """Which message to send again: 0 is all."""

    id: Natural = 0


@Route(
    "GET", "/api/outbox", right=Right.READ, answer=list[MessageView], query=MessagesQuery, of_job=True, is_paged=True
)
async def list_messages(request: web.Request) -> web.Response:
    """List the messages that wait and those that were given up, newest first."""
    service, query = request.app[SERVICE], query_of(request, MessagesQuery)
    job = (service.find(query.job) or JobId(query.job)) if query.job else None  # one that is gone may have left some
    if job is not None:
        check_may_see(request, job)
    found = await visible(
        request,
        lambda most, older: service.messages(job, limit=most, before=older),
        lambda message: (message.job_id, message.id),
        limit=query.limit,
        before=query.before or None,
    )
    return page_answer(request, found, before=found[-1].id if len(found) == query.limit else None)


@Route("POST", "/api/outbox/retry", right=Right.RUN, answer=MessagesRetried, query=RetryQuery)
async def retry_messages(request: web.Request) -> web.Response:
    """Send one message again, by its id; without one, all."""
    message = query_of(request, RetryQuery).id or None
    return json_answer(MessagesRetried(retried=await request.app[SERVICE].retry_messages(message)))
