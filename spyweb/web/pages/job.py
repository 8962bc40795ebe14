"""The page of a job, and what its buttons do."""

from __future__ import annotations

from aiohttp import web

from spyweb.web.access.rights import Right
from spyweb.web.pages.page import Asked, action, lead_to


@action("jobs/{job}/run", right=Right.RUN)
async def run_now(asked: Asked) -> web.Response:
    """Start a run of a job, or queue it."""
    await asked.service.trigger(asked.job().id)
    return lead_to(asked.back())


@action("jobs/{job}/pause", right=Right.RUN)
async def pause(asked: Asked) -> web.Response:
    """Have the schedule of a job start no more runs."""
    await asked.service.pause(asked.job().id)
    return lead_to(asked.back())


@action("jobs/{job}/resume", right=Right.RUN)
async def resume(asked: Asked) -> web.Response:
    """Have the schedule of a paused job start runs again."""
    await asked.service.resume(asked.job().id)
    return lead_to(asked.back())
