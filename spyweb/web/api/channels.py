"""Handlers for alert channels: list them, and try one out."""

from __future__ import annotations

from aiohttp import web

from spyweb.errors import Refused
from spyweb.views.channels import ChannelTried, ChannelView
from spyweb.web.answer import json_answer
from spyweb.web.api.route import SERVICE, Right, Route


@Route("GET", "/api/channels", right=Right.READ, answer=list[ChannelView])
async def list_channels(request: web.Request) -> web.Response:
    """List the alert channels: what each is told, what waits for it, and why it took nothing lately."""
    return json_answer(await request.app[SERVICE].channels.list())


@Route("POST", "/api/channels/{channel}/test", right=Right.RUN, answer=ChannelTried)
async def try_channel(request: web.Request) -> web.Response:
    """Send a message to an alert channel, at once and past the outbox, and say how that went."""
    try:
        tried = await request.app[SERVICE].channels.try_out(request.match_info["channel"])
    except Refused as refused:
        raise web.HTTPNotFound(text=str(refused)) from refused
    return json_answer(tried)
