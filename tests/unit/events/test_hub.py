"""The hub of events: what is kept, for how long, and what a client that comes back is told."""

from __future__ import annotations

import pytest

from spyweb.events.happenings import EventType
from spyweb.events.hub import LINGER_S, MOST_KEPT, MOST_KEPT_BYTES, MOST_TAKEN, WOKEN_AT_ONCE, Topic, Wish
from spyweb.model import JobId
from tests.fakes.listening import BACKUP, BOOT, PRICES, Listening

LINES = Wish(types=frozenset({EventType.LOG}), job=PRICES)


@pytest.fixture
def listening() -> Listening:
    return Listening()


def kept(listening: Listening) -> int:
    return sum(len(each.events) for each in listening.hub._kept.values())


def test_nothing_is_numbered_or_kept_while_nobody_listens(listening: Listening) -> None:
    listening.run()
    assert (listening.hub.number, kept(listening), listening.sources.story) == (0, 0, [])


def test_a_new_follower_is_told_where_it_is_so_that_it_can_come_back(listening: Listening) -> None:
    client = listening.follow().read()
    assert client.mark == listening.hub.mark()
    assert client.mark is not None
    assert client.mark.startswith(f"{BOOT}-")
    mark = client.leave()
    number = listening.run()
    back = listening.follow(mark=mark).read()
    assert (back.runs, back.resets) == ([number], 0)


@pytest.mark.parametrize(
    "mark",
    [
        "",
        "b00t",
        "b00t-",
        "b00t-x",
        "b00t--1",
        "b00t-9999999999999999",
        "b00t-1²",
        "other-1",
        "b00t-99",
        "b00t-0",
        "\0-1",
    ],
)
def test_a_mark_of_another_start_or_of_nothing_is_a_reset_and_then_goes_on(listening: Listening, mark: str) -> None:
    first = listening.follow()
    listening.run()
    client = listening.follow(mark=mark).read()
    assert (client.resets, client.runs) == (1, [])
    number = listening.run()
    assert client.read().runs == [number]
    first.leave()


def test_as_many_as_are_kept_come_whole(listening: Listening) -> None:
    mark = listening.follow().read().leave()
    for _ in range(MOST_KEPT):
        listening.run()
    back = listening.follow(mark=mark).read()
    assert (back.resets, len(back.runs)) == (0, MOST_KEPT)


def test_large_events_are_bounded_by_their_bytes(listening: Listening) -> None:
    client = listening.follow(LINES).read()
    for _ in range(200):
        listening.line("x" * 20_000)
    assert listening.hub._size <= MOST_KEPT_BYTES
    assert kept(listening) > 50
    assert client.read().resets == 1


def test_a_loud_topic_leaves_the_others_their_past(listening: Listening) -> None:
    mark = listening.follow().read().leave()
    loud = listening.follow(LINES)
    number = listening.run()
    for _ in range(3 * MOST_KEPT):
        listening.line("again")
    back = listening.follow(mark=mark).read()
    assert (back.resets, back.runs) == (0, [number])
    loud.leave()


def test_what_is_kept_and_its_source_are_dropped_a_while_after_the_last_listener(listening: Listening) -> None:
    client = listening.follow().read()
    other = listening.follow()
    mark = client.leave()
    listening.clock.advance(2 * LINGER_S)
    assert listening.sources.going == ["run"]  # there is another
    other.leave()
    listening.run()
    listening.clock.advance(LINGER_S - 1)
    assert (listening.sources.going, kept(listening)) == (["run"], 1)
    listening.clock.advance(1)
    assert (listening.sources.going, kept(listening), listening.hub._size) == ([], 0, 0)
    back = listening.follow(mark=mark).read()
    assert back.resets == 1  # what happened meanwhile was not kept


def test_whoever_comes_back_in_time_keeps_the_source_going(listening: Listening) -> None:
    mark = listening.follow().read().leave()
    listening.clock.advance(LINGER_S - 1)
    back = listening.follow(mark=mark).read()
    listening.clock.advance(2 * LINGER_S)
    assert (back.resets, listening.sources.story) == (0, ["begin run"])


def test_only_the_lines_of_a_job_that_is_followed_are_told(listening: Listening) -> None:
    client = listening.follow(LINES).read()
    listening.line("for nobody", BACKUP)
    listening.run()
    listening.line("hello")
    assert [frame.split("\n")[0] for frame in client.read().frames] == ["event: log"]
    assert "hello" in client.frames[0]
    assert listening.sources.going == ["log:prices"]


def test_whoever_may_see_some_jobs_is_told_of_nothing_else() -> None:
    def may_see(job: JobId) -> bool:
        return job == BACKUP

    listening = Listening()
    client = listening.follow(Wish(types=frozenset({EventType.RUN, EventType.HEALTH}), may_see=may_see))
    listening.run(PRICES)
    number = listening.run(BACKUP)
    listening.hub.publish(EventType.HEALTH, None, listening.hub._kept[Topic(EventType.RUN)].events[0].happening)
    assert client.read().runs == [number]


def test_much_comes_in_pieces(listening: Listening) -> None:
    client = listening.follow().read()
    numbers = [listening.run() for _ in range(1000)]
    assert MOST_TAKEN <= client.read_once() < MOST_TAKEN + 300
    assert client.follower.has_more
    assert client.read().runs == numbers


def test_a_follower_is_woken_once_for_all_that_it_has_not_taken(listening: Listening) -> None:
    client = listening.follow().read()
    for _ in range(3):
        listening.run()
    listening.clock.advance(1)
    assert client.woken == 1
    client.read()
    listening.run()
    listening.clock.advance(1)
    assert client.woken == 2


def test_what_does_not_concern_it_leaves_a_quiet_follower_up_to_date(listening: Listening) -> None:
    client = listening.follow(Wish(types=frozenset({EventType.RUN}), job=BACKUP)).read()
    for _ in range(MOST_KEPT + 1):
        listening.run(PRICES)
    number = listening.run(BACKUP)
    assert (client.read().resets, client.runs) == (0, [number])
    assert client.follower.mark == listening.hub.mark()


def test_very_many_followers_are_not_woken_in_one_go(listening: Listening) -> None:
    clients = [listening.follow().read() for _ in range(3 * WOKEN_AT_ONCE)]
    listening.run()
    rounds = []
    while any(client.woken == 0 for client in clients):
        listening.clock.advance(1e-9)
        rounds.append(sum(client.woken for client in clients))
    assert rounds == [WOKEN_AT_ONCE, 2 * WOKEN_AT_ONCE, 3 * WOKEN_AT_ONCE]


def test_the_newest_that_are_kept_can_be_looked_at(listening: Listening) -> None:
    both = Wish(types=frozenset({EventType.RUN, EventType.STATE}))
    assert listening.hub.newest(both, limit=9) == []
    listening.follow(both)
    first, second, third = (listening.run(job) for job in (PRICES, BACKUP, PRICES))
    newest = listening.hub.newest(both, limit=2)
    assert [event.job for event in newest] == [PRICES, BACKUP]
    assert newest[0].at_ms == listening.clock.now_ms()
    older = listening.hub.newest(both, limit=9, before=newest[-1].number)
    assert [event.job for event in older] == [PRICES]
    of_backup = Wish(types=frozenset({EventType.RUN}), may_see=lambda job: job == BACKUP)
    assert [event.job for event in listening.hub.newest(of_backup, limit=9)] == [BACKUP]
    assert first < second < third
