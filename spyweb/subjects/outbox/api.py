"""Handlers for undelivered messages: list them, and retry them."""

from __future__ import annotations

from aiohttp import web
from msgspec import Struct

from spyweb.outbox.sender import OutboxSender
from spyweb.subjects.outbox.views import MessagesRetried, MessageView, messages_of
from spyweb.web.answer import json_answer
from spyweb.web.api.query import Natural, PageQuery, job_of, list_answer, query_of
from spyweb.web.api.route import Right, Route
from spyweb.web.api.services import service_of


class RetryQuery(Struct, frozen=True):
    """Which message to send again: 0 is all."""

    id: Natural = 0


@Route("GET", "/api/outbox", right=Right.READ, answer=list[MessageView], query=PageQuery, of_job=True, is_paged=True)
async def list_messages(request: web.Request) -> web.Response:
    """List the undelivered messages, waiting and given up, newest first."""
    query, outbox = query_of(request, PageQuery), service_of(request, OutboxSender)
    job = job_of(request, query.job) if query.job else None
    return await list_answer(
        request,
        query,
        lambda most, older: messages_of(outbox, job, limit=most, before=older),
        lambda message: (message.job_id, message.id),
    )


@Route("POST", "/api/outbox/retry", right=Right.RUN, answer=MessagesRetried, query=RetryQuery)
async def retry_messages(request: web.Request) -> web.Response:
    """Send one message again, by its id; without one, all."""
    message = query_of(request, RetryQuery).id or None
    return json_answer(MessagesRetried(retried=await service_of(request, OutboxSender).retry(message)))
