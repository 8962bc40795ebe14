"""Handlers for alert channels: list them, and try one out."""

from __future__ import annotations

from aiohttp import web

from spyweb.errors import Refused
from spyweb.service.channels import ChannelService
from spyweb.views.channels import ChannelTried, ChannelView
from spyweb.web.answer import json_answer
from spyweb.web.api.route import Right, Route
from spyweb.web.services import service_of


@Route("GET", "/api/channels", right=Right.READ, answer=list[ChannelView])
async def list_channels(request: web.Request) -> web.Response:
    """List the alert channels: what each is told, what waits for it, and why it took nothing lately."""
    return json_answer(await service_of(request, ChannelService).list())


@Route("POST", "/api/channels/{channel}/test", right=Right.RUN, answer=ChannelTried)
async def try_channel(request: web.Request) -> web.Response:
    """Send a message to an alert channel, at once and past the outbox, and say how that went."""
    try:
        tried = await service_of(request, ChannelService).try_out(request.match_info["channel"])
    except Refused as refused:
        raise web.HTTPNotFound(text=str(refused)) from refused
    return json_answer(tried)
