"""Alert channels: who is told, whether each takes what it is sent, and trying one out."""

from __future__ import annotations

from collections.abc import Mapping

from aiohttp import web

from spyweb.errors import Refused
from spyweb.web.access.principal import Right
from spyweb.web.pages.page import Action, Asked, DashboardPage, PageMissing, PagePart, Shown, lead_to

LEVEL_WORDS = {"info": "everything", "warning": "warnings and what is critical", "critical": "what is critical"}


async def values_of(asked: Asked) -> Mapping[str, object]:
    """Gather what changes."""
    channels = await asked.service.channels.list()
    return {
        "channels": channels,
        "down": sum(channel.down_since_ms is not None for channel in channels),
        "level_words": LEVEL_WORDS,
    }


@DashboardPage(
    "channels",
    "channels.html",
    place="incidents",
    parts={"channels-now": PagePart("channel_list.html", ("incident", "outbox"))},
)
async def show_channels(asked: Asked) -> Shown:
    """Show the channels of the settings."""
    return Shown(title="Alert channels", values=await values_of(asked))


@Action("channels/{name}/test", right=Right.RUN)
async def try_channel(asked: Asked) -> web.Response:
    """Send a message that tells of nothing; the page shows how that went."""
    try:
        await asked.service.channels.try_out(asked.request.match_info["name"])
    except Refused as refused:
        raise PageMissing(str(refused)) from refused
    return lead_to(asked.back())
