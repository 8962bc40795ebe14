"""Requests of other programs: who may start a job, and that nobody else learns which jobs there are."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from io import BytesIO
from typing import Any

import pytest

from spyweb.limits import HOOK_BODY, HOOK_VALUES
from spyweb.model import NO_HOOK, Every, HookSigning, JobHook, JobId, Never, Overlap, Pings
from spyweb.runs.pings import LONGEST_LOG
from spyweb.subjects.health.service import ReadinessService
from spyweb.subjects.hooks.api import REFUSED
from spyweb.subjects.runs.starting import REPEATED
from spyweb.web.access.audit import AuditService
from spyweb.web.access.keys import AccessService
from spyweb.web.access.principal import Principal, Right, rights_of
from spyweb.web.api.services import SERVICES, STARTING
from spyweb.web.app import socket_app, tcp_app
from tests.fakes.client import Client, client_of
from tests.fakes.daemon_service import FakeDaemonService
from tests.fakes.harness import Harness, harness, make_job
from tests.fakes.hooks import SECRET, hook, make_hooks, signed
from tests.fakes.keys import COOKIE

KEY = "the key of the API"
JSON = {"Content-Type": "application/json"}
NOTHING: Mapping[str, str] = {}
PRICES, BACKUP = "/api/hooks/prices", "/api/hooks/backup"  # with a secret and without


@asynccontextmanager
async def served(
    key: str | None = KEY, of_prices: JobHook | None = None, *, socket: bool = False
) -> AsyncIterator[tuple[Client, Harness]]:
    async with harness() as t:
        prices = make_job(schedule=Never(), overlap=Overlap.ALLOW, hook=of_prices or hook(HookSigning.GITHUB))
        await t.settle(prices, make_job("backup", schedule=Never()))
        service = FakeDaemonService(api_key=key)
        service.hooks = make_hooks(t)
        async with client_of(socket_app(service) if socket else tcp_app(service)) as client:
            yield client, t
        await t.clock.turn()


async def post(
    client: Client, path: str, body: bytes = b"{}", headers: Mapping[str, str] = NOTHING
) -> tuple[int, dict[str, Any]]:
    async with client.post(path, data=BytesIO(body), headers={**JSON, **headers}) as answer:
        return answer.status, await answer.json()


def github(body: bytes = b"{}", secret: str = SECRET) -> dict[str, str]:
    return dict(signed(HookSigning.GITHUB, body, 0, secret))


async def test_a_signed_request_starts_the_job_without_a_key_from_wherever_it_comes() -> None:
    for key in (KEY, None):
        async with served(key) as (client, t):
            foreign = {"Host": "spyweb.example.org", "Origin": "https://elsewhere.example"}
            status, answer = await post(client, PRICES, b'{"a":1}', {**github(b'{"a":1}'), **foreign})
            await t.clock.turn()
            assert (status, await t.record()) == (202, ["prices webhook success"])
            assert answer == {"run": 1}


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_who_comes_while_the_daemon_starts_is_told_to_come_again(method: str) -> None:
    async with served() as (client, _):
        client.app[SERVICES][ReadinessService].stage = STARTING
        for path in ("/api/hooks/later", PRICES, f"{PRICES}/start"):
            async with client.request(method, path, headers=github(b"")) as answer:
                assert (answer.status, answer.headers["Retry-After"]) == (503, "1")
                assert (await answer.json())["error"] == STARTING


async def test_a_job_that_is_not_loaded_yet_is_not_called_unknown() -> None:
    async with served(None) as (client, _):
        client.app[SERVICES][ReadinessService].stage = STARTING
        assert (await post(client, "/api/jobs/later/trigger"))[0] == 503
        assert (await post(client, "/api/jobs/prices/trigger"))[0] == 200
        client.app[SERVICES][ReadinessService].stage = ""
        assert (await post(client, "/api/jobs/later/trigger"))[0] == 404


@pytest.mark.parametrize("key", [KEY, None])
async def test_without_a_signature_or_a_key_all_jobs_look_alike(key: str | None) -> None:
    async with served(key) as (client, t):
        foreign = {"Host": "spyweb.example.org"}
        tries = [NOTHING, github(secret="guess"), github(b"another body")]
        for headers in tries:
            answers = [
                await post(client, path, headers={**headers, **foreign})
                for path in (PRICES, BACKUP, "/api/hooks/typo", "/api/hooks/nothing", "/api/hooks/%00")
            ]
            assert all(answer == answers[0] for answer in answers)
            assert (answers[0][0], answers[0][1]["error"]) == (401, REFUSED)
        assert await t.record() == []


async def test_a_key_with_the_right_starts_any_job_and_learns_which_there_are() -> None:
    async with served() as (client, t):
        key = {"X-SpyWeb-Key": KEY}
        assert (await post(client, PRICES, headers=key))[0] == 202
        assert (await post(client, BACKUP, headers=key))[0] == 202
        status, answer = await post(client, "/api/hooks/price", headers=key)
        assert (status, answer["code"]) == (404, "not_found")
        await t.clock.turn()
        assert len(await t.record()) == 2


async def test_on_this_machine_a_job_without_a_secret_needs_nothing_and_one_with_a_secret_its_signature() -> None:
    async with served(None) as (client, _):
        assert (await post(client, BACKUP))[0] == 202
        assert (await post(client, BACKUP, headers={"Origin": "https://evil.example"}))[0] == 401
        assert (await post(client, PRICES))[0] == 401
        assert (await post(client, PRICES, headers=github()))[0] == 202
        assert (await post(client, "/api/hooks/nothing"))[0] == 404


async def test_the_owner_of_the_socket_needs_no_signature() -> None:
    async with served(socket=True) as (client, _):
        assert (await post(client, PRICES))[0] == 202


@pytest.mark.parametrize(
    ("principal", "status"),
    [
        (Principal(name="reader", rights=rights_of(Right.READ), source="key"), 403),
        (Principal(name="runner", rights=rights_of(Right.RUN), source="key"), 202),
        (Principal(name="limited", rights=rights_of(Right.RUN), source="key", jobs=("back*",)), 403),
        (Principal(name="limited", rights=rights_of(Right.RUN), source="key", jobs=("pri*",)), 202),
    ],
)
async def test_a_key_needs_the_right_to_run_this_job(
    principal: Principal, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spyweb.subjects.hooks.api.principal_of", lambda _: principal)
    monkeypatch.setattr("spyweb.web.access.principal.principal_of", lambda _: principal)
    async with served() as (client, _):
        assert (await post(client, PRICES))[0] == status


async def test_a_start_by_a_hook_is_on_record_under_its_name_and_so_is_a_wrong_signature() -> None:
    async with served() as (client, _):
        await post(client, PRICES, headers=github())
        await post(client, PRICES, headers=github(secret="guess"))
        refused, started = await client.app[SERVICES][AuditService].lines(limit=10)
    assert (started.who, started.action, started.job, started.status) == (
        "hook prices", "POST /api/hooks/{job}", "prices", 202,
    )  # fmt: skip
    assert (refused.who, refused.job, refused.status) == ("nobody", "prices", 401)


@pytest.mark.parametrize(
    ("kind", "body", "seen"),
    [
        ("application/json", b'{"a":[1,"x"]}', {"a": [1, "x"]}),
        ("application/vnd.github+json; charset=utf-8", b"[]", []),
        ("text/plain", "größer".encode(), "größer"),
        ("text/plain; x*=punycode''a-b", b"x", "x"),
        ("application/x-www-form-urlencoded", b"a=1&b=2", "a=1&b=2"),
        ("application/json", b"", "-"),
    ],
)
async def test_the_script_sees_json_as_a_table_and_anything_else_as_text(kind: str, body: bytes, seen: object) -> None:
    async with served() as (client, t):
        async with client.post(PRICES, data=body, headers={"Content-Type": kind, **github(body)}) as answer:
            assert answer.status == 202
        await t.clock.turn()
        (ctx, *_) = t.pool.requests[0].arguments
        assert isinstance(ctx, dict)
        assert ctx["trigger"].get("payload", "-") == seen


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (b"{", "application/json", 400),
        (b"[" * 100 + b"]" * 100, "application/json", 400),
        (b"[" + b"1," * HOOK_VALUES + b"1]", "application/json", 400),
        (b"x" * (HOOK_BODY + 1), "application/json", 413),
        (b'"\xff"', "application/json", 400),
        (b"\xff", "text/plain", 422),
    ],
    ids=["no JSON", "deep", "many values", "large", "no UTF-8", "no text"],
)
async def test_a_body_that_no_script_could_hold_is_refused(body: bytes, kind: str, status: int) -> None:
    async with served() as (client, t):
        assert (await post(client, PRICES, body, {**github(body), "Content-Type": kind}))[0] == status
        assert await t.record() == []


async def test_a_delivery_that_is_repeated_gets_the_first_answer_unless_its_sender_may_not_start_the_job() -> None:
    async with served() as (client, t):
        headers = {**github(), "Idempotency-Key": "8d3f"}
        first = await post(client, PRICES, headers=headers)
        await t.clock.turn(5)
        async with client.post(PRICES, data=b"{}", headers={**JSON, **headers}) as again:
            assert (again.status, await again.json()) == first
            assert again.headers[REPEATED] == "true"
        status, answer = await post(client, PRICES, b"[1]", {**github(b"[1]"), "Idempotency-Key": "8d3f"})
        assert (status, answer["code"]) == (422, "key_reused")
        assert (await post(client, PRICES, headers={"Idempotency-Key": "8d3f"}))[0] == 401
        assert len(await t.record()) == 1


NIGHTLY = Pings(schedule=Every(period_ms=86_400_000))
PINGED = BACKUP


@asynccontextmanager
async def pinged(key: str | None = None, of_backup: JobHook = NO_HOOK) -> AsyncIterator[tuple[Client, Harness]]:
    async with served(key) as (client, t):
        await t.settle(make_job("backup", schedule=NIGHTLY, overlap=Overlap.ALLOW, hook=of_backup))
        yield client, t


async def ask(client: Client, method: str, path: str, **options: Any) -> int:
    async with client.request(method, path, **options) as answer:
        await answer.read()
        return answer.status


async def recorded(t: Harness) -> list[str]:
    await t.clock.turn()
    runs = await t.store.runs.list(JobId("backup"))
    return [f"{run.outcome or run.state} {run.reason}".strip() for run in reversed(runs)]


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST"])
async def test_a_ping_may_be_sent_in_any_way_that_its_senders_know(method: str) -> None:
    async with pinged() as (client, t):
        assert await ask(client, method, PINGED) == 202
        assert await ask(client, method, f"{PINGED}/start?rid=0b6e") == 202
        assert await ask(client, method, f"{PINGED}/007?rid=0b6e&create=1") == 202
        assert await ask(client, method, f"{PINGED}/fail") == 202
        assert await recorded(t) == ["success", "failed exit code 7", "failed it reported a failure"]


async def test_the_body_of_a_ping_is_its_log_of_which_the_end_is_kept() -> None:
    async with pinged() as (client, t):
        log = b"x" * LONGEST_LOG + b"\n\xff last\n"
        assert await ask(client, "POST", f"{PINGED}/fail", data=log) == 202
        assert await recorded(t) == ["failed it reported a failure: \ufffd last"]


@pytest.mark.parametrize("says", ["stop", "256", "-1", "1.5", "%00", "9999"])
async def test_what_a_ping_can_not_say_is_refused(says: str) -> None:
    async with pinged() as (client, t):
        assert await ask(client, "POST", f"{PINGED}/{says}") == 404
        assert await ask(client, "GET", f"{PINGED}?rid={'x' * 101}") == 400
        assert await recorded(t) == []


async def test_a_job_that_runs_here_hears_no_pings() -> None:
    async with pinged(KEY) as (client, t):
        headers = {"X-SpyWeb-Key": KEY}
        assert await ask(client, "GET", PRICES, headers=headers) == 405
        assert await ask(client, "POST", f"{PRICES}/start", headers=headers) == 404
        await t.clock.turn()
        assert await t.record() == []


async def test_a_ping_needs_the_secret_of_its_job_or_a_key() -> None:
    secret = dict(signed(HookSigning.PLAIN, b"", 0))
    async with pinged(KEY, hook(HookSigning.PLAIN)) as (client, t):
        assert await ask(client, "GET", PINGED) == 401
        assert await ask(client, "GET", PINGED, headers={"X-SpyWeb-Hook-Secret": "guess"}) == 401
        assert await ask(client, "GET", "/api/hooks/nothing") == 401
        assert await recorded(t) == []
        assert await ask(client, "GET", PINGED, headers=secret) == 202
        assert await ask(client, "POST", f"{PINGED}/start", headers={"X-SpyWeb-Key": KEY}) == 202
        assert await recorded(t) == ["success", "running"]


async def test_a_page_of_another_site_sends_no_pings_from_a_browser_here() -> None:
    async with pinged() as (client, t):
        for headers in ({"Sec-Fetch-Site": "cross-site"}, {"Origin": "https://elsewhere.example"}):
            assert await ask(client, "GET", PINGED, headers=headers) == 403
            assert await ask(client, "POST", f"{PINGED}/fail", headers=headers) == 401
        assert await recorded(t) == []


async def test_a_picture_on_another_page_sends_no_ping_as_who_is_signed_in() -> None:
    async with pinged(KEY) as (client, t):
        access = client.app[SERVICES][AccessService]
        given = access.admit_key(KEY)
        assert given
        session = {"Cookie": f"{COOKIE}={access.sign_in(given)}"}
        assert await ask(client, "GET", f"{PINGED}/fail", headers=session) == 403
        assert await ask(client, "GET", PINGED, headers={**session, "Sec-Fetch-Site": "none"}) == 202
        assert await recorded(t) == ["success"]
