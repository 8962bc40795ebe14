"""Streams end with their key; what changes something does not end half way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import ClientSession, web
from aiohttp.typedefs import Handler

from spyweb.ops.network.address_check import OwnSockets
from spyweb.service.access import Pass
from spyweb.store.model.access import Scope
from spyweb.web.access.cookies import HOSTS, PORT
from spyweb.web.access.guard import guarded_by
from spyweb.web.access.open_requests import OpenRequests
from spyweb.web.access.principal import Right
from spyweb.web.access.recognise import AccessRule, Recogniser
from spyweb.web.access.throttle import Throttle
from spyweb.web.answer import answer_errors
from spyweb.web.serve import serve_app
from tests.fakes.clock import FakeClock
from tests.fakes.daemon_service import FakeDaemonService


class World:
    """A server with a stream, and a change that takes its time."""

    def __init__(self) -> None:
        self.service = FakeDaemonService()
        self.recogniser = Recogniser(self.service.access, Throttle(FakeClock()), OwnSockets())
        self.ended = asyncio.Event()
        self.goes_on = asyncio.Event()
        self.begun = asyncio.Event()
        self.story: list[str] = []

    def app(self) -> web.Application:
        underway = OpenRequests(self.service.access)
        rules: dict[Handler, AccessRule] = {each: AccessRule(Right.READ) for each in (self.stream, self.change)}
        guard = guarded_by(self.recogniser, rules, None, underway)
        app = web.Application(middlewares=[answer_errors, guard])
        app[HOSTS], app[PORT] = (), 0
        app.on_response_prepare.append(underway.note_begun)
        app.router.add_get("/stream", self.stream)
        app.router.add_get("/change", self.change)
        return app

    async def stream(self, request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        await answer.write(b"begun\n")
        try:
            await asyncio.Event().wait()
        finally:
            self.ended.set()
        return answer

    async def change(self, request: web.Request) -> web.StreamResponse:
        self.begun.set()
        await self.goes_on.wait()
        self.story.append("changed")
        return web.Response()

    async def key(self, name: str) -> str:
        return (await self.service.access.add(name, [Scope.READ])).token

    def browser(self, token: str) -> dict[str, str]:
        found = self.service.access.admit_key(token)
        assert isinstance(found, Pass)
        return {"Cookie": f"spyweb_0={self.service.access.sign_in(found)}"}


@asynccontextmanager
async def client_of(app: web.Application) -> AsyncIterator[ClientSession]:
    """Serve as a daemon does: a test's server would cancel a handler whose client has gone."""
    async with (
        serve_app(app, host="127.0.0.1", port=0) as listening,
        ClientSession(listening.url) as client,
    ):
        yield client


async def read_to_the_end(client: ClientSession, headers: dict[str, str], begun: asyncio.Event) -> str:
    async with client.get("/stream", headers=headers) as answer:
        assert await answer.content.readline() == b"begun\n"
        begun.set()
        return (await answer.content.read()).decode()


@pytest.mark.parametrize("how", ["key", "session"])
async def test_a_stream_ends_with_its_key(how: str) -> None:
    world = World()
    token, other = await world.key("phone"), await world.key("other")
    async with client_of(world.app()) as client, asyncio.timeout(5), asyncio.TaskGroup() as tasks:
        headers = world.browser(token) if how == "session" else {"X-SpyWeb-Key": token}
        begun, others_begun = asyncio.Event(), asyncio.Event()
        stream = tasks.create_task(read_to_the_end(client, headers, begun))
        others = tasks.create_task(read_to_the_end(client, {"X-SpyWeb-Key": other}, others_begun))
        await begun.wait()
        await others_begun.wait()

        await world.service.access.revoke("phone")

        await world.ended.wait()
        assert await stream == ""
        assert not others.done()
        await world.service.access.revoke("other")


async def test_what_is_about_to_change_something_ends_as_it_would_have() -> None:
    world = World()
    token = await world.key("phone")
    async with client_of(world.app()) as client, asyncio.timeout(5), asyncio.TaskGroup() as tasks:
        asking = tasks.create_task(client.get("/change", headers={"X-SpyWeb-Key": token}))
        await world.begun.wait()
        await world.service.access.revoke("phone")
        world.goes_on.set()
        assert (await asking).status == 200
    assert world.story == ["changed"]
