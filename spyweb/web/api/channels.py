"""Handlers for alert channels: try one out."""

from __future__ import annotations

from aiohttp import web

from spyweb.errors import Refused
from spyweb.views.channels import ChannelTried
from spyweb.web.answer import json_answer
from spyweb.web.api.keys import SERVICE
from spyweb.web.api.route import Right, route


@route("POST", "/api/channels/{channel}/test", right=Right.RUN, answer=ChannelTried)
async def try_channel(request: web.Request) -> web.Response:
    """Send a message to an alert channel, at once and past the outbox, and say how that went."""
    try:
        tried = await request.app[SERVICE].channels.try_out(request.match_info["channel"])
    except Refused as refused:
        raise web.HTTPNotFound(text=str(refused)) from refused
    return json_answer(tried)
