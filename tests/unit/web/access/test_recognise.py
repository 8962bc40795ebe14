"""Who a request comes from: keys in headers, sessions in cookies, this machine; hostile names, origins and cookies."""

from __future__ import annotations

from http.cookies import Morsel, SimpleCookie

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request
from structlog.testing import capture_logs
from yarl import URL

from spyweb.web.access.headers import HOSTS, PORT, drop_session, is_secure, session_cookie, set_session
from spyweb.web.access.principal import ALL, LOOPBACK, Right, rights_of
from spyweb.web.access.recognise import ADDRESSES, FORGOTTEN_S, FREE, FREE_OF_ALL, AccessRule, Throttle, by_loopback
from spyweb.web.app import Site, socket_app, tcp_app
from tests.fakes.client import client_of, get_json
from tests.fakes.clock import FakeClock
from tests.fakes.daemon_service import FakeDaemonService
from tests.fakes.keys import COOKIE, OWNER, Doors, open_doors

TRIGGER = "/api/jobs/prices/trigger"


async def trail(doors: Doors) -> list[str]:
    """Return what is on record, oldest first."""
    lines = await doors.service.trail.lines(limit=100)
    return [f"{each.who} {each.source}: {each.action} {each.status}" for each in reversed(lines)]


@pytest.mark.parametrize("form", ["Bearer {}", "bearer {}", "Bearer   {} "])
async def test_a_token_may_come_as_a_bearer(doors: Doors, form: str) -> None:
    for who in ("read", "owner"):
        header = form.format(doors.tokens[who])
        assert await doors.status("GET", "/api/jobs", Authorization=header) == 200
    assert await doors.status("GET", "/api/jobs", Authorization="Bearer guess") == 401
    assert await doors.status("GET", "/api/jobs", Authorization=f"Basic {doors.tokens['read']}") == 401


async def test_the_header_of_spyweb_counts_before_the_other(doors: Doors) -> None:
    authorization = f"Bearer {doors.tokens['read']}"
    assert await doors.status("GET", "/api/jobs", "guess", Authorization=authorization) == 401
    assert await doors.status("GET", "/api/jobs", "read", Authorization="Bearer of the project") == 200


async def test_a_key_may_use_any_name_and_a_browser_one_that_is_known() -> None:
    async with open_doors(site=Site(hosts=("spyweb.example.org",))) as doors:
        browser = doors.signed_in("read")
        for host, status in [
            ("evil.example", 403),
            ("spyweb.example.org", 200),
            ("SPYWEB.example.org:8443", 200),
            ("spyweb.example.org.evil.example", 403),
            ("10.0.0.1:7979", 200),
            ("[fd00::1]:7979", 200),
            ("localhost", 200),
            ("", 403),
            ("[::", 403),
            ("x" * 5_000, 403),
            ("spyweb.example.org\xff", 403),
        ]:
            assert await doors.status("GET", "/api/jobs", "read", Host=host) == 200, host
            assert await doors.status("GET", "/api/jobs", Host=host, **browser) == status, host


@pytest.mark.parametrize(
    ("headers", "is_ours"),
    [
        ({}, True),
        ({"Origin": "http://localhost:7979"}, True),
        ({"Origin": "http://localhost:7979", "Sec-Fetch-Site": "same-origin"}, True),
        ({"Origin": "https://spyweb.example.org"}, True),
        ({"Sec-Fetch-Site": "none"}, True),
        ({"Origin": "http://localhost:3000"}, False),
        ({"Origin": "http://127.0.0.1:7979"}, False),
        ({"Origin": "https://evil.example"}, False),
        ({"Origin": "https://evil.example/http://localhost:7979"}, False),
        ({"Origin": "null"}, False),
        ({"Origin": ""}, False),
        ({"Origin": "x" * 5_000}, False),
        ({"Origin": "://"}, False),
        ({"Sec-Fetch-Site": "cross-site"}, False),
        ({"Origin": "http://localhost:7979", "Sec-Fetch-Site": "same-site"}, False),
    ],
)
async def test_what_a_page_of_another_site_has_sent_changes_nothing(headers: dict[str, str], is_ours: bool) -> None:
    async with open_doors(site=Site(hosts=("spyweb.example.org",))) as doors:
        browser = doors.signed_in("run")
        status = await doors.status("POST", TRIGGER, Host="localhost:7979", **browser, **headers)
        assert (status, doors.service.story) == ((200, ["trigger prices"]) if is_ours else (403, []))
        assert await doors.status("POST", TRIGGER, "run", Host="localhost:7979", **headers) == 200

    service = FakeDaemonService()
    if headers.get("Origin") != "https://spyweb.example.org":  # without any key no name but this machine's counts
        async with client_of(tcp_app(service)) as client:
            async with client.post(TRIGGER, headers={"Host": "localhost:7979", **headers}) as answer:
                assert (answer.status == 200) is is_ours
            assert service.story == (["trigger prices"] if is_ours else [])


@pytest.mark.parametrize(
    "cookie",
    [
        "",
        ";" * 5_000,
        "=" * 5_000,
        f"{COOKIE}",
        f"{COOKIE}=",
        f"{COOKIE}=" + "x" * 6_000,
        f'{COOKIE}="\\"',
        f"{COOKIE}=\xff\xfe",
        f"{COOKIE}=; {COOKIE}=x",
        "a=b; " * 1_000,
        f"{COOKIE}x=1; __Host-{COOKIE}=2",
    ],
)
async def test_a_cookie_that_is_none_is_passed_over(doors: Doors, cookie: str) -> None:
    assert await doors.status("GET", "/api/jobs", Cookie=cookie) == 401
    assert await doors.status("GET", "/api/jobs", "read", Cookie=cookie) == 200


async def test_the_cookie_is_found_among_others(doors: Doors) -> None:
    cookie = doors.signed_in("read")["Cookie"]
    for others in (f"a=b; {cookie}", f"{cookie};c=d", f"a=b;{cookie};e", f'x="; y"; {cookie}'):
        assert await doors.status("GET", "/api/jobs", Cookie=others) == 200


async def test_wrong_keys_are_slowed_down_and_right_tokens_are_not(doors: Doors) -> None:
    statuses = [await doors.status("GET", "/api/jobs", f"guess {number}") for number in range(FREE + 3)]
    assert statuses == [401] * (FREE + 1) + [429] * 2
    assert await doors.status("GET", "/api/jobs", "owner") == 429
    async with doors.client.get("/api/jobs", headers={"X-SpyWeb-Key": "guess"}) as answer:
        assert answer.headers["Retry-After"] == "1"
    for who in ("read", "admin"):
        assert await doors.status("GET", "/api/jobs", who) == 200
    assert await doors.status("GET", "/api/jobs", **doors.signed_in("read")) == 200
    assert await doors.status("GET", "/api/jobs") == 401
    assert await doors.status("GET", "/healthz", "guess") == 200

    doors.service.clock.advance(1)  # type: ignore[attr-defined]  # a fake one
    assert await doors.status("GET", "/api/jobs", "owner") == 200


async def test_what_is_done_is_on_record_and_what_is_looked_at_is_not() -> None:
    async with open_doors() as doors:
        with capture_logs() as logged:
            await doors.status("GET", "/api/jobs", "read")
            await doors.status("POST", TRIGGER, "run")
            await doors.status("POST", TRIGGER, "read")
            await doors.status("POST", TRIGGER, **doors.signed_in("limited"))
            await doors.status("DELETE", "/api/state/entry?namespace=scope:a&key=%ff%00k", "state")
            await doors.status("POST", "/api/jobs/nobody/trigger", "run")
            await doors.status("POST", TRIGGER)
            await doors.status("POST", TRIGGER, "guess")
            await doors.status("POST", "/api/nothing", "run")
        assert await trail(doors) == [
            "run key: POST /api/jobs/{job}/trigger 200",
            "read key: POST /api/jobs/{job}/trigger 403",
            "limited session: POST /api/jobs/{job}/trigger 200",
            "state key: DELETE /api/state/entry 200",
            "run key: POST /api/jobs/{job}/trigger 404",
            "nobody nobody: POST /api/jobs/{job}/trigger 401",
        ]
        first, *_ = reversed(await doors.service.trail.lines(limit=100))
        assert (first.job, first.address, first.times) == ("prices", "127.0.0.1", 1)
        assert len([each for each in logged if each["event"] == "audit"]) == 6
        entry = (await doors.service.trail.lines(limit=3))[2]
        assert entry.target == "namespace scope:a, key \ufffd?k"
    secrets = [*doors.tokens.values(), OWNER]
    assert not [each for each in secrets if each in f"{logged}"]


async def test_the_local_user_is_on_record() -> None:
    service = FakeDaemonService()
    async with client_of(socket_app(service)) as client:
        await client.post(TRIGGER)
    async with client_of(tcp_app(service)) as client:
        await client.post(TRIGGER)
    lines = await service.trail.lines(limit=10)
    assert [(each.who, each.source, each.address) for each in reversed(lines)] == [
        ("local", "socket", ""),
        ("loopback", "loopback", "127.0.0.1"),
    ]


async def test_revoking_the_last_key_leaves_this_machine_alone() -> None:
    async with open_doors(api_key=None) as doors:
        assert await doors.status("GET", "/api/jobs") == 401
        for name in ("read", "run", "state", "admin", "limited", "other"):
            await doors.service.access.revoke(name)
        assert await doors.status("GET", "/api/jobs") == 200
        assert await doors.status("GET", "/api/jobs", Host="spyweb.example.org") == 403


async def status_of(path: str, key: str | None, headers: dict[str, str]) -> tuple[int, object]:
    async with client_of(tcp_app(FakeDaemonService(api_key=key))) as client:
        return await get_json(client, path, **headers)


LOOPBACK_NAMES = ("localhost", "LOCALHOST:7979", "127.0.0.1:1", "127.1.2.3", "[::1]:7979")
REBOUND_NAMES = ("evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "0.0.0.0", "10.1.1.1:7979", "[::")


@pytest.mark.parametrize("path", ["/api/jobs", "/healthz"])
@pytest.mark.parametrize("host", [*LOOPBACK_NAMES, *REBOUND_NAMES, "x" * 7_000])
async def test_without_a_key_loopback_is_answered_and_a_rebound_name_is_refused(path: str, host: str) -> None:
    assert (await status_of(path, None, {"Host": host}))[0] == (200 if host in LOOPBACK_NAMES else 403)


@pytest.mark.parametrize(
    "header", ["Forwarded", "Via", "X-Real-IP", "X-Forwarded-For", "x-forwarded-proto", "X-Forwarded-Whatever"]
)
async def test_without_a_key_nothing_is_answered_through_a_proxy(header: str) -> None:
    for path in ("/api/jobs", "/healthz"):
        status, answer = await status_of(path, None, {header: "x"})
        assert (status, "`spyweb keys add`" in str(answer)) == (403, True)
        assert (await status_of(path, OWNER, {header: "x", "X-SpyWeb-Key": OWNER}))[0] == 200


@pytest.mark.parametrize(
    ("remote", "is_here"), [("127.0.0.1", True), ("::1", True), ("10.0.0.5", False), ("fd00::5", False)]
)
def test_without_a_key_the_connection_itself_must_come_from_here(remote: str, is_here: bool) -> None:
    """A server that listens everywhere may lose its last key, and a Host header says what its sender likes."""
    request = make_mocked_request("GET", "/api/jobs", headers={"Host": "localhost"}).clone(remote=remote)
    if is_here:
        assert by_loopback(request, AccessRule(Right.READ)) is LOOPBACK
    else:
        with pytest.raises(web.HTTPForbidden) as caught:
            by_loopback(request, AccessRule(Right.READ))
        assert "only this machine is answered" in (caught.value.text or "")


@pytest.mark.parametrize(
    "path",
    [
        "/api/keys/",
        "/api//keys", "/api/%6beys", "/%61pi/keys", "/api/keys;x", "/api/keys%00", "/api/./keys",
        "/api/public/../keys", "/api/public/..%2fkeys", "/api/public/%2e%2e/keys", "/API/keys",
        "/api/keys?x=/api/public/",
        "/api/keys%2fphone", "/api/v/../keys", "/sign-in/../api/keys", "/api/%c0%afkeys",
        "/api/" + "../" * 500 + "api/keys",
        "/api/" + "x" * 5_000,
    ],
)  # fmt: skip
async def test_no_way_of_writing_an_address_leads_past_the_guard(doors: Doors, path: str) -> None:
    for headers in ({}, {"X-SpyWeb-Key": "guess"}, {"X-SpyWeb-Key": doors.tokens["read"]}):
        async with doors.client.get(URL(path, encoded=True), headers=headers, allow_redirects=False) as answer:
            assert answer.status in (400, 401, 403, 404)
            assert "begins" not in await answer.text()


def test_each_right_has_reading_with_it_and_admin_has_all() -> None:
    assert rights_of(Right.READ) == {Right.READ}
    assert rights_of(Right.RUN) == {Right.READ, Right.RUN}
    assert rights_of(Right.RUN, Right.STATE) == {Right.READ, Right.RUN, Right.STATE}
    assert rights_of(Right.ADMIN) == ALL == set(Right)


def asked_with(**headers: str) -> web.Request:
    app = web.Application()
    app[HOSTS], app[PORT] = ("spyweb.example.org",), 7979
    return make_mocked_request(
        "GET", "/", headers={name.replace("_", "-"): text for name, text in headers.items()}, app=app
    )


def morsel(answer: web.Response) -> Morsel[str]:
    cookies: SimpleCookie = answer.cookies
    (found,) = cookies.values()
    return found


PROXIED = {"Host": "spyweb.example.org", "X_Forwarded_Proto": "https"}


@pytest.mark.parametrize(
    ("headers", "secure"),
    [
        ({"Host": "spyweb.example.org"}, False),
        (PROXIED, True),
        ({**PROXIED, "Host": "SPYWEB.example.org:443"}, True),
        ({**PROXIED, "Host": "other.example"}, False),
        ({**PROXIED, "X_Forwarded_Proto": "http"}, False),
        ({"X_Forwarded_Proto": "https"}, False),
    ],
)
def test_a_proxy_is_believed_only_under_a_name_that_the_settings_list(headers: dict[str, str], secure: bool) -> None:
    assert is_secure(asked_with(**headers)) is secure


def test_the_cookie_is_for_this_server_alone_and_goes_with_its_session() -> None:
    answer = web.Response()
    set_session(asked_with(Host="localhost"), answer, "abc")

    found = morsel(answer)
    assert (found.key, found.value, found["path"], found["samesite"]) == ("spyweb_7979", "abc", "/", "Strict")
    assert (found["httponly"], found["secure"], found["domain"]) == (True, False, "")
    assert found["max-age"] == str(7 * 24 * 3600)

    answer = web.Response()
    drop_session(asked_with(), answer)
    assert (morsel(answer).key, morsel(answer)["max-age"]) == ("spyweb_7979", "0")


def test_behind_tls_it_is_secure_and_no_other_host_can_set_it() -> None:
    request, answer = asked_with(**PROXIED), web.Response()
    set_session(request, answer, "abc")

    found = morsel(answer)
    assert (found.key, found["secure"]) == ("__Host-spyweb_7979", True)
    assert session_cookie(asked_with(**PROXIED, Cookie="__Host-spyweb_7979=abc; spyweb_7979=other")) == "abc"
    assert session_cookie(asked_with(**PROXIED, Cookie="spyweb_7979=other")) == ""


def failed(throttle: Throttle, times: int, address: str = "10.0.0.1") -> None:
    for _ in range(times):
        throttle.fail(address)


def test_the_first_wrong_keys_cost_nothing_and_then_each_twice_as_much() -> None:
    throttle = Throttle(FakeClock())
    failed(throttle, FREE)
    waits = [throttle.wait_s("10.0.0.1")]
    for _ in range(8):
        throttle.fail("10.0.0.1")
        waits.append(throttle.wait_s("10.0.0.1"))
    assert waits == [0, 1, 2, 4, 8, 16, 32, 60, 60]
    assert throttle.wait_s("10.0.0.2") == 0, "another address does not wait"


def test_many_addresses_together_wait_too_but_for_one_that_had_the_right_key() -> None:
    throttle = Throttle(FakeClock())
    throttle.succeed("10.0.0.1")
    for number in range(FREE_OF_ALL + 3):
        throttle.fail(f"2001:db8:{number:x}::/64")
    assert throttle.wait_s("10.9.9.9") == 4
    assert throttle.wait_s("10.0.0.1") == 0
    failed(throttle, FREE + 1)
    assert throttle.wait_s("10.0.0.1") == 1


def test_waiting_ends_and_failures_are_forgotten_by_monotonic_time() -> None:
    clock = FakeClock()
    throttle = Throttle(clock)
    failed(throttle, FREE + 3)
    clock.jump(1_000_000)
    assert throttle.wait_s("10.0.0.1") == 4
    clock.advance(4)
    assert throttle.wait_s("10.0.0.1") == 0
    throttle.fail("10.0.0.1")
    assert throttle.wait_s("10.0.0.1") == 8
    clock.advance(FORGOTTEN_S + 1)
    throttle.fail("10.0.0.1")
    assert throttle.wait_s("10.0.0.1") == 0


def test_only_so_many_addresses_are_known() -> None:
    throttle = Throttle(FakeClock())
    failed(throttle, 20, "first")
    for number in range(ADDRESSES):
        throttle.fail(f"a{number}")
    assert len(throttle._known) == ADDRESSES
    assert "first" not in throttle._known
