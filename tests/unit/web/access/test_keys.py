"""Keys, tokens and sessions: who is let in, and for how long."""

from __future__ import annotations

import asyncio
import hmac
import re
from unittest.mock import patch

import pytest

from spyweb.errors import Refused, StoreError
from spyweb.limits import ACCESS_KEYS, SESSIONS, SESSIONS_OF_KEY
from spyweb.store.model.access import Scope
from spyweb.store.patterns import is_within
from spyweb.web.access.keys import (
    CHECKSUM,
    OWNER,
    PREFIX,
    THE_OWNER,
    AccessService,
    Principal,
    find_handle,
    hash_secret,
    make_token,
)
from tests.fakes.clock import FakeClock
from tests.fakes.memory_store import MemoryStore

HOUR, DAY = 3600, 24 * 3600
BAD_NAMES = ["", "a b", "-x", "é", "x" * 65, "local", "loopback", OWNER, "a\n", "../x"]  # in an address


class World:
    """A store, and the service over it as a daemon has it; `restart` is another daemon."""

    def __init__(self, api_key: str | None = None) -> None:
        self.clock = FakeClock()
        self.store = MemoryStore(self.clock)
        self.access = AccessService(self.store.keys, self.clock, api_key)

    async def restart(self, api_key: str | None = None) -> AccessService:
        self.access = AccessService(self.store.keys, self.clock, api_key)
        await self.access.load()
        return self.access

    async def key(self, name: str = "phone", *scopes: Scope, jobs: tuple[str, ...] = ()) -> str:
        return (await self.access.add(name, scopes or [Scope.READ], jobs)).token

    async def signed_in(self, name: str = "phone") -> str:
        found = self.access.admit_key(await self.key(name))
        assert found
        return self.access.sign_in(found)


@pytest.fixture
def world() -> World:
    return World()


def admitted(found: Principal | None) -> Principal:
    assert found
    return found


async def test_a_key_lets_in_with_what_it_permits(world: World) -> None:
    assert world.access.is_open

    token = await world.key("deploy", Scope.STATE, Scope.RUN, jobs=("deploy-*",))

    found = admitted(world.access.admit_key(token))
    rights = frozenset({Scope.READ, Scope.RUN, Scope.STATE})
    assert (found.name, found.rights, found.session) == ("deploy", rights, None)
    assert found.may_see("deploy-web")
    assert not found.may_see("prices")
    assert not world.access.is_open


async def test_nothing_but_the_token_lets_in(world: World) -> None:
    token, other = await world.key(), await world.key("other")

    for guess in ("", "phone", token[:-1], token[:15] + other[15:], token + " ", "\udcff"):
        assert world.access.admit_key(guess) is None


async def test_keys_are_compared_in_constant_time() -> None:
    world = World("secret")
    token = await world.key()
    with patch("spyweb.web.access.keys.hmac.compare_digest", wraps=hmac.compare_digest) as compare:
        world.access.admit_token(token)
        world.access.is_owner("secret")

    assert compare.call_count == 2


async def test_the_token_is_shown_once_and_kept_nowhere(world: World) -> None:
    made = await world.access.add("phone", [Scope.READ])

    (view,) = world.access.all_keys()
    (stored,) = await world.store.keys.all()
    assert view == made.key
    assert made.token.startswith(f"{PREFIX}{view.handle}")
    assert made.token not in f"{view} {stored}"
    assert made.token[15:] not in f"{view} {stored}"


async def test_the_key_of_the_environment_permits_all() -> None:
    world = World("clé-secrète")

    assert not world.access.is_open
    assert world.access.admit_key("clé-secrète") == THE_OWNER
    assert THE_OWNER.rights == frozenset(Scope)
    for guess in ("clé-secrèt", "\udcff", ""):
        assert world.access.admit_key(guess) is None
    assert world.access.admit_token("clé-secrète") is None
    assert World().access.admit_key("") is None


@pytest.mark.parametrize(
    ("name", "scopes", "jobs", "reason"),
    [
        *((name, [Scope.READ], [], "can't be the name of a key") for name in BAD_NAMES),
        *(("a", [Scope.READ], jobs, "expected at most 100 patterns") for jobs in ([""], ["x" * 1_025], ["a"] * 101)),
        ("a", [], [], "needs a scope: read, run, state, admin"),
        ("phone", [Scope.READ], [], "there is a key phone already"),
    ],
)
async def test_what_makes_no_key_is_refused(
    world: World, name: str, scopes: list[Scope], jobs: list[str], reason: str
) -> None:
    await world.key()
    with pytest.raises(Refused, match=reason):
        await world.access.add(name, scopes, jobs)


async def test_there_are_only_so_many_keys(world: World) -> None:
    for number in range(ACCESS_KEYS):
        await world.key(f"k{number}")
    with pytest.raises(Refused, match="there are 1000 keys already"):
        await world.key("one-more")


async def test_keys_last_over_a_restart_and_a_revoked_one_is_gone_for_good(world: World) -> None:
    token, other = await world.key(), await world.key("other")
    service = await world.restart()
    assert admitted(service.admit_key(token)).name == "phone"

    assert await service.revoke("phone")
    assert not await service.revoke("phone")

    assert service.admit_key(token) is None
    service = await world.restart()
    assert service.admit_key(token) is None
    assert admitted(service.admit_key(other)).name == "other"


async def test_a_revoked_key_takes_its_sessions_along_and_whoever_listens_hears_of_it(world: World) -> None:
    cookie, other = await world.signed_in(), await world.signed_in("other")
    passes = [admitted(world.access.admit_session(each)) for each in (cookie, other)]
    heard: list[list[bool]] = []
    world.access.on_ended(lambda: heard.append([world.access.is_valid(each) for each in passes]))

    await world.access.revoke("phone")

    assert heard == [[False, True]]
    assert world.access.admit_session(cookie) is None
    assert (await world.restart()).admit_session(cookie) is None


async def test_a_key_that_the_store_does_not_let_go_of_stays(world: World) -> None:
    token = await world.key()
    with (
        patch.object(world.store.keys, "remove", side_effect=StoreError("the disk is full")),
        pytest.raises(StoreError, match="the disk is full"),
    ):
        await world.access.revoke("phone")

    assert world.access.admit_key(token)


async def test_the_last_use_is_stored_at_most_once_a_minute(world: World) -> None:
    token = await world.key()
    writes = world.store.stats().writes
    uses = []
    for _ in range(61):
        world.access.admit_key(token)
        await world.clock.turn(1)
        uses.append(world.access.all_keys()[0].used_ms)

    assert world.store.stats().writes == writes + 2
    assert len(set(uses)) == 2
    assert [key.used_ms for key in await world.store.keys.all()] == [uses[-1]]


async def test_a_session_ends_after_twelve_hours_without_a_request(world: World) -> None:
    cookie = await world.signed_in()
    await world.clock.turn(12 * HOUR)
    assert world.access.admit_session(cookie)
    await world.clock.turn(12 * HOUR)
    assert (await world.restart()).admit_session(cookie)
    await world.clock.turn(12 * HOUR + 1)
    assert world.access.admit_session(cookie) is None
    assert await world.store.keys.sessions() == []


async def test_a_session_ends_after_seven_days_whatever_happens(world: World) -> None:
    cookie = await world.signed_in()
    for _ in range(14):
        await world.clock.turn(12 * HOUR)
        found = admitted(world.access.admit_session(cookie))
    await world.clock.turn(1)
    assert not world.access.is_valid(found)
    assert world.access.admit_session(cookie) is None


async def test_an_open_page_keeps_its_session(world: World) -> None:
    cookie = await world.signed_in()
    found = admitted(world.access.admit_session(cookie))
    with world.access.held(found), world.access.held(found):
        await world.clock.turn(30 * HOUR)
        world.access.sweep()
        assert world.access.is_valid(found)
    await world.clock.turn(11 * HOUR)
    assert world.access.admit_session(cookie)
    await world.clock.turn(13 * HOUR)
    assert world.access.admit_session(cookie) is None


async def test_sessions_whose_time_is_over_are_swept_and_told(world: World) -> None:
    await world.signed_in()
    heard: list[str] = []
    world.access.on_ended(lambda: heard.append("ended"))
    world.access.sweep()
    assert heard == []
    await world.clock.turn(13 * HOUR)

    world.access.sweep()

    assert heard == ["ended"]
    assert await world.store.keys.sessions() == []


async def test_a_clock_that_was_set_back_prolongs_no_session(world: World) -> None:
    cookie = await world.signed_in()
    world.clock.jump(-8 * DAY)
    assert world.access.admit_session(cookie) is None


async def test_a_session_of_the_environments_key_ends_with_that_key() -> None:
    world = World("first")
    cookie = world.access.sign_in(THE_OWNER)
    assert admitted(world.access.admit_session(cookie)).name == OWNER
    assert admitted((await world.restart("first")).admit_session(cookie)).rights == frozenset(Scope)

    for other in ("second", None):
        assert (await world.restart(other)).admit_session(cookie) is None


async def test_of_too_many_sessions_of_a_key_the_one_seen_longest_ago_ends(world: World) -> None:
    other = await world.signed_in("other")
    found = admitted(world.access.admit_key(await world.key()))
    cookies = [world.access.sign_in(found) for _ in range(SESSIONS_OF_KEY)]
    world.access.admit_session(cookies[0])

    cookies.append(world.access.sign_in(found))

    assert [bool(world.access.admit_session(each)) for each in cookies] == [True, False] + [True] * 49
    assert world.access.admit_session(other)
    assert len(await world.store.keys.sessions()) == SESSIONS_OF_KEY + 1


async def test_all_sessions_together_are_bounded(world: World) -> None:
    for number in range(SESSIONS // SESSIONS_OF_KEY + 1):
        found = admitted(world.access.admit_key(await world.key(f"k{number}")))
        for _ in range(SESSIONS_OF_KEY):
            world.access.sign_in(found)

    assert len(await world.store.keys.sessions()) == SESSIONS


async def test_a_use_is_not_held_up_by_a_store_that_refuses(world: World) -> None:
    cookie = await world.signed_in()
    await world.clock.turn(120)
    await world.store.close()

    assert world.access.admit_session(cookie)
    await world.clock.turn()


@pytest.mark.parametrize(
    ("patterns", "job", "answer"),
    [
        ((), "prices", True),
        (("prices",), "prices", True),
        (("price",), "prices", False),
        (("a", "deploy-*"), "deploy-web", True),
        (("deploy-*",), "deploy", False),
        (("*",), "anything", True),
        (("prices",), "/server", False),
    ],
)
def test_patterns_say_which_jobs(patterns: tuple[str, ...], job: str, answer: bool) -> None:
    assert is_within(patterns, job) is answer


def test_a_token_is_found_by_its_handle_and_has_256_bits_of_chance() -> None:
    token = make_token()

    assert re.fullmatch(r"spyweb_[0-9A-Za-z]{57}", token)
    assert find_handle(token) == token[7:15]
    assert 62 ** len(token[15:-CHECKSUM]) > 2**256
    assert len({make_token() for _ in range(100)}) == 100


@pytest.mark.parametrize("where", [7, 14, 15, 57, 58, 63])
def test_a_mistyped_token_has_no_handle(where: int) -> None:
    token = make_token()
    other = "a" if token[where] != "a" else "b"

    assert find_handle(token[:where] + other + token[where + 1 :]) is None


@pytest.mark.parametrize("text", ["", "spyweb_", "x" * 64, "spyweb_" + "0" * 56 + "\n", "spyweb_" + "é" * 57, "\udcff"])
def test_what_is_no_token_has_no_handle(text: str) -> None:
    assert find_handle(text) is None


async def test_a_hash_shows_nothing_new_and_may_cover_a_key(world: World) -> None:
    cookie = await world.signed_in()

    assert len(cookie) == 43
    assert len(hash_secret(cookie)) == 32
    assert len({hash_secret(cookie), hash_secret(cookie, "one"), hash_secret(cookie, "two"), hash_secret("x")}) == 4
    assert hash_secret("\udcff", "\udcfe")


# Several nodes


async def test_what_one_node_changes_holds_on_another_once_that_has_read_it(world: World) -> None:
    other = AccessService(world.store.keys, world.clock)
    ended: list[str] = []
    other.on_ended(lambda: ended.append("some"))
    token = await world.key()
    cookie = await world.signed_in("laptop")
    assert other.is_open
    assert other.admit_key(token) is None

    await other.load()
    assert admitted(other.admit_key(token)).name == "phone"
    assert admitted(other.admit_session(cookie)).name == "laptop"
    assert not ended

    await world.access.revoke("phone")
    world.access.sign_out(hash_secret(cookie))
    await other.load()
    assert other.admit_key(token) is None
    assert other.admit_session(cookie) is None
    assert ended


async def test_what_changes_here_while_the_store_is_read_again_stays(world: World) -> None:
    token = await world.key()
    reading = asyncio.create_task(world.access.load())
    await asyncio.sleep(0)
    cookie = world.access.sign_in(admitted(world.access.admit_key(token)))
    await reading
    assert world.access.admit_session(cookie)


async def test_a_session_of_an_open_page_is_not_idle_on_another_node(world: World) -> None:
    cookie = await world.signed_in()
    other = AccessService(world.store.keys, world.clock)
    with world.access.held(admitted(world.access.admit_session(cookie))):
        for _ in range(3):
            world.clock.advance(8 * HOUR)
            world.access.sweep()
            await other.load()
    assert other.admit_session(cookie)


async def test_a_sign_out_is_not_undone_by_a_request_at_a_node_that_has_not_heard_of_it(world: World) -> None:
    cookie = await world.signed_in()
    other = AccessService(world.store.keys, world.clock)
    await other.load()
    world.access.sign_out(hash_secret(cookie))
    world.clock.advance(2 * 60)
    assert other.admit_session(cookie), "it has not heard yet"
    await other.load()
    await world.restart()
    assert not other.admit_session(cookie)
    assert not world.access.admit_session(cookie)
