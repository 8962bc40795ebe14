"""What only a job's owner can answer is passed on to it, by whichever node is asked."""

from __future__ import annotations

import asyncio
from typing import Any
from unittest.mock import patch

import pytest
from aiohttp import ClientPayloadError, web
from aiohttp.test_utils import RawTestServer

from spyweb.daemon.subjects import ADDRESSES, ROUTES
from spyweb.limits import KEY_JOBS
from spyweb.store.model.access import Scope
from spyweb.web.access.forward import HEADER, LIFE_MS
from spyweb.web.app import socket_app
from tests.fakes.client import client_of
from tests.fakes.clock import FakeClock
from tests.fakes.daemon_service import BACKUP, PRICES
from tests.fakes.dashboard import signed_in
from tests.fakes.nodes import ALPHA, BETA, TwoNodes, give_away, make_node, two_nodes

RUN = "/api/jobs/prices/trigger"
Asked = tuple[int, str]


async def ask(nodes: TwoNodes, method: str, path: str, who: str = "", **options: Any) -> Asked:
    headers = {"X-SpyWeb-Key": nodes.tokens[who]} if who else {}
    headers |= options.pop("headers", {})
    async with nodes.client.request(method, path, headers=headers, allow_redirects=False, **options) as answer:
        return answer.status, await answer.text()


async def capture(nodes: TwoNodes) -> list[web.BaseRequest]:
    """Put a server in beta's place that keeps what it gets; end it with the client."""
    seen: list[web.BaseRequest] = []

    async def keep(request: web.BaseRequest) -> web.StreamResponse:
        seen.append(request)
        return web.json_response({"run": 7}, headers={"Set-Cookie": "a=b"})

    server = await nodes.stack.enter_async_context(RawTestServer(keep))
    nodes.put(PRICES, make_node(url=str(server.make_url(""))))
    return seen


async def test_a_job_elsewhere_is_run_there_once_and_put_on_record_where_it_was_asked_for() -> None:
    async with two_nodes() as nodes:
        assert await ask(nodes, "POST", RUN, "run", json={"a": 1}) == (200, '{"run":9}')
        assert nodes.beta.story == ["trigger prices with {'a': 1}"]
        assert nodes.alpha.story == []
        (line,) = await nodes.alpha.trail.lines(limit=9)
        assert (line.who, line.action, line.job, line.status) == ("run", "POST /api/jobs/{job}/trigger", PRICES, 200)
        assert await nodes.beta.trail.lines(limit=9) == []
        assert (await ask(nodes, "GET", "/api/jobs", "run"))[0] == 200


async def test_rights_are_checked_where_it_is_asked_and_where_it_is_done() -> None:
    async with two_nodes() as nodes:
        with patch.object(nodes.alpha.forwarder, "look") as look:
            assert (await ask(nodes, "POST", RUN, "read"))[0] == 403
            assert (await ask(nodes, "POST", RUN))[0] == 401
            look.assert_not_called()
        status, text = await ask(nodes, "POST", RUN, "limited")
        assert (status, "beta" in text) == (403, False), "it learns nothing of the job, not even where it is"
        assert (await ask(nodes, "POST", "/api/jobs/backup/trigger", "limited"))[0] == 200
        assert nodes.beta.story == ["trigger backup"]
        voucher = await voucher_for(nodes, "GET", "/api/jobs/prices/logs", "read")
        async with nodes.beta_client.post(RUN, headers={HEADER: voucher}) as answer:
            assert answer.status == 403


async def voucher_for(nodes: TwoNodes, method: str, path: str, who: str, body: bytes = b"") -> str:
    """Return a voucher that alpha has made."""
    kept = next(iter(nodes.owners.values()))
    seen = await capture(nodes)
    await ask(nodes, method, path, who, data=body)
    nodes.put(PRICES, kept)
    return seen[0].headers[HEADER]


async def test_neither_key_nor_cookie_leaves_the_node() -> None:
    async with two_nodes() as nodes:
        seen, token = await capture(nodes), nodes.tokens["admin"]
        browser = await signed_in(nodes.alpha, Scope.ADMIN)
        own = {"Origin": f"http://127.0.0.1:{nodes.client.port}", "Sec-Fetch-Site": "same-origin"}
        cookies = {"Cookie": f"{browser['Cookie']}; spyweb_theme=dark; mine=1"}
        hop = {"Connection": "keep-alive, X-Hop", "X-Hop": "1", "Idempotency-Key": "k"}
        await ask(nodes, "POST", RUN, "admin", headers=hop)
        await ask(nodes, "POST", RUN, headers={"Authorization": f"Bearer {token}"})
        status, text = await ask(nodes, "POST", RUN, headers={**browser, **cookies, **own})
        assert (status, text) == (200, '{"run": 7}')
        for request in seen:
            assert not {"x-spyweb-key", "authorization", "origin", "x-hop"} & {name.lower() for name in request.headers}
            assert token not in str(request.headers)
            assert browser["Cookie"].split("=")[1] not in str(request.headers)
        assert seen[0].headers["Idempotency-Key"] == "k"
        assert seen[2].headers["Cookie"] == "spyweb_theme=dark"
        foreign = {**browser, "Sec-Fetch-Site": "cross-site"}
        assert (await ask(nodes, "POST", RUN, headers=foreign))[0] == 403, "a page of another site changes nothing"
        assert len(seen) == 3


GOOD = ("POST", RUN, b'{"a":1}')
WRONG = {
    "path": ("POST", "/api/jobs/backup/trigger", GOOD[2]),
    "query": ("POST", f"{RUN}?a=1", GOOD[2]),
    "method": ("DELETE", RUN, GOOD[2]),
    "body": ("POST", RUN, b'{"a":2}'),
    "no body": ("POST", RUN, b""),
}


async def tell(nodes: TwoNodes, voucher: str, method: str, path: str, body: bytes) -> int:
    """Send beta a request with a voucher, as anybody can; return the status."""
    async with nodes.beta_client.request(method, path, headers={HEADER: voucher}, data=body) as answer:
        return answer.status


@pytest.mark.parametrize("wrong", WRONG)
async def test_a_voucher_is_for_one_request_to_the_letter(wrong: str) -> None:
    async with two_nodes() as nodes:
        voucher = await voucher_for(nodes, *GOOD[:2], "run", GOOD[2])
        assert await tell(nodes, voucher, *WRONG[wrong]) in (400, 403, 405)
        assert nodes.beta.story == []


async def test_a_voucher_is_accepted_once_and_soon_by_the_node_that_it_is_for() -> None:
    async with two_nodes() as nodes:
        first, second, third = [await voucher_for(nodes, *GOOD[:2], "run", GOOD[2]) for _ in range(3)]
        assert [await tell(nodes, first, *GOOD) for _ in range(3)] == [200, 403, 403]
        forwarder, clock = nodes.beta.forwarder, nodes.beta.clock
        assert forwarder
        assert isinstance(clock, FakeClock)
        forwarder.me = BETA + 1  # its next start
        assert await tell(nodes, second, *GOOD) == 403
        forwarder.me = BETA
        for made_up in ("x", f"{second.partition('.')[0]}.{'0' * 64}", f"{second[:-1]}\udcff", f"é.{second}"):
            assert await tell(nodes, made_up.encode("utf-8", "surrogateescape").decode("latin-1"), *GOOD) == 403
        assert await tell(nodes, second, *GOOD) == 200
        clock.jump(LIFE_MS / 1000 + 1)
        assert await tell(nodes, third, *GOOD) == 403
        assert nodes.beta.story == ["trigger prices with {'a': 1}"] * 2


async def test_it_says_in_one_line_why_it_can_not() -> None:
    async with two_nodes() as nodes:
        nodes.put(PRICES, make_node())
        status, text = await ask(nodes, "POST", RUN, "run")
        assert (status, "prices is at beta: with [cluster] url there" in text) == (409, True)
        nodes.put(PRICES, None)
        status, text = await ask(nodes, "POST", RUN, "run")
        assert (status, "no node runs prices now" in text) == (503, True)
        nodes.put(PRICES, make_node(ALPHA))
        assert "prices is moving from one node to another" in (await ask(nodes, "POST", RUN, "run"))[1]
        nodes.put(PRICES, make_node(url="http://127.0.0.1:1"))
        status, text = await ask(nodes, "POST", RUN, "run")
        assert (status, "prices is at beta, which does not answer: " in text) == (503, True)
        nodes.put(PRICES, make_node(url=str(nodes.beta_client.make_url(""))))
        give_away(nodes.beta.live)
        assert "prices is moving" in (await ask(nodes, "POST", RUN, "run"))[1], "it is passed on once"
        assert nodes.beta.story == nodes.alpha.story == []


async def test_what_any_node_knows_in_part_is_shown_where_the_owner_is_not_reached() -> None:
    async with two_nodes() as nodes:
        for node in (make_node(), None, make_node(url="http://127.0.0.1:1")):
            nodes.put(PRICES, node)
            assert (await ask(nodes, "GET", "/api/runs/1", "read"))[0] == 200
        seen = await capture(nodes)
        assert await ask(nodes, "GET", "/api/runs/1", "read") == (200, '{"run": 7}')
        assert await ask(nodes, "GET", "/api/events?job=prices&types=run", "read") == (200, '{"run": 7}')
        assert [request.path for request in seen] == ["/api/runs/1", "/api/events"]
        assert (await ask(nodes, "GET", "/api/runs/1", "limited"))[0] == 403
        assert (await ask(nodes, "GET", "/api/runs/99", "read"))[0] == 404


async def test_what_needs_the_owner_is_refused_in_one_line_by_a_node_that_is_full_or_of_another_version() -> None:
    both = [("POST", RUN, "run"), ("GET", "/api/runs/1", "read")]
    async with two_nodes() as nodes:
        with patch("spyweb.web.access.forward.MOST_SEEN", 0):
            assert [(await ask(nodes, *each))[0] for each in both] == [503, 200]
        with patch("spyweb.web.access.forward.to_bytes", return_value=b'{"renamed":1}'):
            status, text = await ask(nodes, *both[0])
            assert (status, "has another version of spyweb" in text) == (503, True)
            assert (await ask(nodes, *both[1]))[0] == 200
    assert nodes.beta.story == []


async def test_a_run_is_watched_as_it_goes_and_its_end_reaches_who_watches() -> None:
    async with two_nodes() as nodes:
        status, text = await ask(nodes, "POST", "/api/jobs/prices/run?dry_run=1", "run")
        assert (status, text.count("\n")) == (200, 3)
        assert nodes.beta.story == ["dry run prices", "closed"]


async def test_a_silent_answer_goes_on_until_the_job_moves_or_the_client_hangs_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("spyweb.web.access.forward.LOOK_S", 0.01)
    over, asked = asyncio.Event(), asyncio.Event()

    async def be_silent(request: web.BaseRequest) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        await answer.write(b"first ")
        await over.wait()
        await answer.write(b"last")
        asked.set()
        return answer

    async with two_nodes() as nodes:
        server = await nodes.stack.enter_async_context(RawTestServer(be_silent))
        url = str(server.make_url(""))
        nodes.put(PRICES, make_node(url=url))
        headers = {"X-SpyWeb-Key": nodes.tokens["run"]}
        for next_owner in (make_node(url=url, beat_ms=9_999), make_node(BETA + 1, "gamma", url=url)):
            over.clear()
            async with nodes.client.post("/api/jobs/prices/run", headers=headers) as answer:
                assert await answer.content.read(6) == b"first "
                nodes.put(PRICES, next_owner)
                if next_owner.id == BETA:
                    await asyncio.sleep(0.05)
                    over.set()
                    assert await answer.content.read() == b"last"
                else:
                    with pytest.raises(ClientPayloadError):
                        await answer.content.read()


async def test_the_head_of_an_answer_may_take_as_long_as_a_run_but_no_longer_than_the_node_lives(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("spyweb.web.access.forward.LOOK_S", 0.01)
    over = asyncio.Event()

    async def wait(request: web.BaseRequest) -> web.StreamResponse:
        await over.wait()
        return web.json_response({"run": 8})

    async with two_nodes() as nodes:
        server = await nodes.stack.enter_async_context(RawTestServer(wait))
        nodes.put(PRICES, make_node(url=str(server.make_url(""))))
        asking = asyncio.create_task(ask(nodes, "POST", "/api/jobs/prices/run", "run"))
        assert (await ask(nodes, "GET", "/api/jobs/prices", "run"))[0] == 200, "this can be answered without"
        assert not asking.done()
        nodes.put(PRICES, None)
        assert "prices is at beta, which does not answer" in (await asking)[1]
        nodes.put(PRICES, make_node(url=str(server.make_url(""))))
        asking = asyncio.create_task(ask(nodes, "POST", "/api/jobs/prices/run", "run"))
        await asyncio.sleep(0.05)
        over.set()
        assert await asking == (200, '{"run": 8}')


async def test_no_more_is_passed_on_at_once_than_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spyweb.web.access.forward.AT_ONCE", 1)
    monkeypatch.setattr("spyweb.web.access.forward.CONNECT_S", 0.05)
    over, asked = asyncio.Event(), asyncio.Event()

    async def wait(request: web.BaseRequest) -> web.StreamResponse:
        asked.set()
        await over.wait()
        return web.json_response({"run": 8})

    async with two_nodes() as nodes:
        server = await nodes.stack.enter_async_context(RawTestServer(wait))
        nodes.put(PRICES, make_node(url=str(server.make_url(""))))
        first = asyncio.create_task(ask(nodes, "POST", RUN, "run"))
        await asked.wait()
        assert (await ask(nodes, "POST", RUN, "run"))[0] == 503
        assert (await ask(nodes, "GET", "/api/runs/1", "read"))[0] == 200, "this can be answered without"
        over.set()
        assert (await first)[0] == 200


async def test_a_form_is_taken_where_it_was_shown_and_done_at_the_owner() -> None:
    async with two_nodes() as nodes:
        browser = await signed_in(nodes.alpha, Scope.RUN)
        form = {"back": "/jobs/prices"}
        async with nodes.client.post("/jobs/prices/run", data=form, headers=browser, allow_redirects=False) as answer:
            assert (answer.status, answer.headers["Location"]) == (303, "/jobs/prices?started=9")
        foreign = {**browser, "Origin": "http://evil.example"}
        async with nodes.client.post("/jobs/prices/pause", data=form, headers=foreign) as answer:
            assert answer.status == 403
        assert nodes.beta.story == ["trigger prices"]
        async with nodes.client.get("/jobs/prices", headers=browser) as answer:
            assert (answer.status, "anna" in await answer.text()) == (200, True)


async def test_the_private_socket_passes_on_too_and_so_does_this_machine_where_there_is_no_key() -> None:
    async with two_nodes(keyed=False) as nodes, client_of(socket_app(nodes.alpha)) as private:
        async with private.post("/api/jobs/prices/pause") as answer:
            assert answer.status == 200
        assert (await ask(nodes, "POST", "/api/jobs/prices/resume"))[0] == 200
        assert nodes.beta.story == ["pause prices", "resume prices"]
        await nodes.beta.access.add("first", [Scope.READ])
        assert (await ask(nodes, "POST", RUN))[0] == 403, "who needs no key there may do nothing where one is needed"


async def test_a_hook_is_passed_on_once_its_sender_is_known() -> None:
    async with two_nodes() as nodes:
        assert (await ask(nodes, "POST", "/api/hooks/prices", data=b"{}"))[0] == 401
        assert nodes.beta.story == []
        assert (await ask(nodes, "POST", "/api/hooks/prices", "run", data=b"{}"))[0] == 202
        assert nodes.beta.story == ["trigger prices"]


@pytest.mark.parametrize("long", [["x" * 1_000] * (KEY_JOBS - 1), ["\N{GRINNING FACE}" * 240] * 8])
async def test_a_key_of_very_many_jobs_is_passed_on_for_the_one_it_asks_about(long: list[str]) -> None:
    async with two_nodes() as nodes:
        jobs = [BACKUP, *(f"{each}{n}" for n, each in enumerate(long))]
        nodes.tokens["many"] = (await nodes.alpha.access.add("many", [Scope.RUN], jobs)).token
        assert (await ask(nodes, "POST", "/api/jobs/backup/pause", "many"))[0] == 200


def test_these_need_the_owner_and_nothing_else_does() -> None:
    names = {each.name: each.at_owner for each in ROUTES if each.at_owner}
    must, rather = "must", "rather"
    assert names == {
        "trigger": must, "pause": must, "resume": must, "read_log": must, "show_run": rather, "cancel": must,
        "check_drift": must, "retry": must, "run_once": must, "debug": must, "follow_events": rather,
        "show_job": rather,
    }  # fmt: skip
    pages = {f"{each.method} {each.path}": each.rule.at_owner for each in ADDRESSES.pages if each.rule.at_owner}
    assert {name for name, each in pages.items() if each == rather} == {"GET /jobs/{job}", "GET /runs/{run}"}
    assert {name.removeprefix("POST ") for name, each in pages.items() if each == must} == {
        *(f"/jobs/{{job}}/{what}" for what in ("run", "start", "pause", "resume", "try")),
        "/runs/{run}/retry", "/runs/{run}/cancel",
    }  # fmt: skip
