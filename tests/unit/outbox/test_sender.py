"""Messages on their way, in virtual time: what a receiver that is down, hangs or refuses does to which of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from itertools import pairwise

import pytest
from structlog.testing import capture_logs

from spyweb.errors import NoAccess, SpywebError, StoreError
from spyweb.model import JobId
from spyweb.outbox.send import DeliveryFailure
from spyweb.outbox.sender import PATIENCE, OutboxSender
from spyweb.ownership import Ownership, slot_of
from spyweb.runs.live import LiveJobs
from spyweb.settings.units import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS
from spyweb.store.model.messages import Channel, NewMessage, QueuedMessage, Target
from tests.fakes.changes import PRICES
from tests.fakes.clock import FakeClock
from tests.fakes.findings import DESKTOP, HOOK, OTHER_HOOK, message
from tests.fakes.memory_store import MemoryStore
from tests.fakes.receiver import DOWN, REFUSED, Receiver, in_turn
from tests.fakes.stores import until_told


class Harness:
    """A outbox_sender, what it delivers from, and who receives."""

    def __init__(self, random: Callable[[], float] = lambda: 0.999999) -> None:
        self.clock = FakeClock()
        self.began_ms = self.clock.now_ms()
        self.store = MemoryStore(self.clock)
        self.receiver = Receiver(self.clock.now_ms)
        self.random = random
        self.ownership = Ownership(self.clock)
        self.outbox_sender = self.make_sender()

    def make_sender(self) -> OutboxSender:
        return OutboxSender(
            outbox=self.store.outbox,
            send=self.receiver.send,
            clock=self.clock,
            random=lambda: self.random(),
            live=LiveJobs(self.ownership),
        )

    @asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        work: Coroutine[object, object, None] = self.outbox_sender.deliver()
        task = asyncio.create_task(work)
        await self.clock.turn()
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait({task})
            assert task.cancelled(), task.exception()

    async def send(self, *messages: NewMessage, seconds: float) -> None:
        """Be at work for so long on these."""
        async with self.at_work():
            await self.add(*messages)
            await self.clock.turn(seconds)

    async def add(self, *messages: NewMessage) -> list[int]:
        return await self.store.outbox.add(messages)

    @contextmanager
    def refused(self) -> Iterator[None]:
        """Have the outbox write nothing down any more."""

        def refuse(_number: int, **_: object) -> asyncio.Future[None]:
            refused: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            refused.set_exception(StoreError("the disk is full"))
            return refused

        with pytest.MonkeyPatch.context() as patch:
            for write in ("done", "put_off", "give_up"):
                patch.setattr(self.store.outbox, write, refuse)
            yield

    def seconds_of(self, payload: str) -> list[float]:
        """When it was attempted, since the beginning."""
        return [(at_ms - self.began_ms) / 1000 for at_ms in self.receiver.times_of(payload)]


@pytest.fixture
def harness() -> Harness:
    return Harness()


async def test_a_message_is_sent_as_soon_as_it_is_added(harness: Harness) -> None:
    async with harness.at_work():
        await harness.add(message("1"), message("2"), message("3", DESKTOP))
        await harness.clock.turn()

        assert sorted(harness.receiver.arrived) == ["1", "2", "3"]
        assert await harness.store.outbox.targets() == []
        await harness.add(message("4"))
        await harness.clock.turn()
        assert harness.receiver.arrived[-1] == "4"


async def test_a_receiver_that_is_down_gets_everything_in_order_once_it_is_up(harness: Harness) -> None:
    harness.receiver.answers[HOOK] = in_turn(DOWN, DOWN, DOWN)
    async with harness.at_work():
        await harness.add(message("1"), message("2"))
        await harness.clock.turn(1.9)
        await harness.add(message("3"))
        await harness.clock.turn(60)

    assert harness.receiver.arrived == ["1", "2", "3"]
    assert [round(at) for at in harness.seconds_of("1")] == [0, 2, 6, 14]
    assert [round(at) for at in harness.seconds_of("2")] == [14]
    assert len(set(harness.receiver.deliveries)) == 3  # each bears one name, whatever the attempt


async def test_delays_have_full_jitter_and_pass_no_minute_in_the_first_hour_then_no_five(harness: Harness) -> None:
    harness.receiver.answers[HOOK] = lambda _: DOWN
    drawn = iter([0.5, 0.0, 0.25])
    harness.random = lambda: next(drawn, 0.999999)
    await harness.send(message("1"), seconds=23 * 3600)

    at = harness.seconds_of("1")
    gaps = [later - earlier for earlier, later in pairwise(at)]
    assert gaps[:3] == pytest.approx([1, 0, 2], abs=0.01)
    assert gaps[3:7] == pytest.approx([16, 32, 60, 60], abs=0.1)
    early = [gap for moment, gap in zip(at, gaps, strict=False) if moment < 3600]
    assert max(early) == pytest.approx(60, abs=0.1)
    assert gaps[len(early) :] == pytest.approx([300] * (len(gaps) - len(early)), abs=0.1)


async def test_one_that_hangs_or_is_down_holds_up_no_other(harness: Harness) -> None:
    harness.receiver.hung.add(HOOK)
    harness.receiver.answers[DESKTOP] = lambda _: DOWN
    async with harness.at_work():
        await harness.add(message("1"), message("2", DESKTOP), message("3", OTHER_HOOK))
        await harness.clock.turn(60)
        await harness.add(message("4"), message("5", OTHER_HOOK))
        await harness.clock.turn(60)

    assert harness.receiver.arrived == ["3", "5"]
    assert harness.seconds_of("1") == [0]


async def test_a_message_that_is_refused_is_passed_and_tried_again(harness: Harness) -> None:
    harness.receiver.answers[HOOK] = lambda sent: REFUSED if sent.payload == b"bad" and sent.attempts < 2 else None
    async with harness.at_work():
        await harness.add(message("bad"), message("good"))
        await harness.clock.turn(1)
        assert harness.receiver.arrived == ["good"]
        await harness.add(message("better"))
        await harness.clock.turn(1)
        assert harness.receiver.arrived == ["good", "better"]
        await harness.clock.turn(4 * 60)

    assert harness.receiver.arrived == ["good", "better", "bad"]


@pytest.mark.parametrize(("wish_ms", "waited_min"), [(10 * MINUTE_MS, 10), (DAY_MS, 15)])
async def test_a_receiver_is_left_alone_as_it_wishes_and_at_most_for_a_quarter_of_an_hour(
    harness: Harness, wish_ms: int, waited_min: int
) -> None:
    harness.receiver.answers[HOOK] = in_turn(DeliveryFailure(reason="answered 429", wait_ms=wish_ms))
    await harness.send(message("1"), message("2"), seconds=16 * 60)

    assert harness.receiver.arrived == ["1", "2"]
    assert harness.seconds_of("1")[1] == pytest.approx(waited_min * 60, abs=0.01)


async def test_what_is_refused_is_tried_three_times_more_over_ten_minutes_and_then_given_up(harness: Harness) -> None:
    harness.receiver.answers[HOOK] = lambda sent: REFUSED if sent.payload == b"bad" else None
    await harness.send(message("bad"), message("good"), seconds=DAY_MS / 1000)

    assert [round(at) for at in harness.seconds_of("bad")] == [0, 60, 240, 600]
    assert harness.receiver.arrived == ["good"]
    assert harness.outbox_sender.dead == 1


async def test_only_refusals_in_a_row_use_up_the_tries_of_a_message(harness: Harness) -> None:
    harness.receiver.answers[HOOK] = in_turn(*[DOWN] * 8, REFUSED, REFUSED, DOWN, REFUSED, REFUSED, REFUSED)
    await harness.send(message("1"), seconds=HOUR_MS / 1000)

    assert harness.receiver.arrived == ["1"]


async def test_a_refused_one_that_is_sent_again_by_hand_has_all_its_tries_again(harness: Harness) -> None:
    harness.receiver.answers[HOOK] = lambda _: REFUSED
    async with harness.at_work():
        await harness.add(message("1"), message("2"))
        await harness.clock.turn(601)
        assert harness.outbox_sender.dead == 2
        await harness.outbox_sender.retry(1)
        await harness.clock.turn(599)
        assert harness.outbox_sender.dead == 1
        assert len(harness.seconds_of("1")) == 7
        await harness.clock.turn(2)
        assert harness.outbox_sender.dead == 2


async def test_after_a_day_a_message_is_given_up_with_a_last_attempt(harness: Harness) -> None:
    harness.receiver.answers[HOOK] = lambda _: DOWN
    async with harness.at_work():
        await harness.add(message("1"))
        await harness.clock.turn(DAY_MS / 1000 - 1)
        assert harness.outbox_sender.dead == 0
        await harness.clock.turn(2)
        assert harness.outbox_sender.dead == 1

        assert harness.seconds_of("1")[-1] == DAY_MS / 1000
        assert await harness.store.outbox.targets() == []
        attempts = len(harness.seconds_of("1"))
        assert 330 < attempts < 345
        await harness.clock.turn(2 * HOUR_MS / 1000)
        assert len(harness.seconds_of("1")) == attempts


async def test_the_log_tells_of_the_first_miss_and_of_the_end_and_names_no_secret(harness: Harness) -> None:
    harness.receiver.answers[HOOK] = lambda _: DOWN
    with capture_logs() as lines:
        await harness.send(message("1"), seconds=DAY_MS / 1000)

    first, last = lines
    assert (first["log_level"], first["to"], first["reason"]) == ("warning", "hooks.example", DOWN.reason)
    assert (last["log_level"], last["job"], last["attempts"]) == ("error", "prices", len(harness.seconds_of("1")))
    assert not any("hooks.example/a" in str(line) or "Bearer" in str(line) for line in lines)


async def test_those_behind_one_that_was_given_up_do_not_hammer_the_target(harness: Harness) -> None:
    harness.receiver.answers[HOOK] = lambda _: DOWN
    async with harness.at_work():
        await harness.add(message("1"))
        await harness.clock.turn(DAY_MS / 1000 - 1)
        await harness.add(message("2"), message("3"))
        await harness.clock.turn(5 * MINUTE_MS / 1000 - 2)

        assert len(harness.seconds_of("2")) == 1
        assert harness.seconds_of("3") == []
        harness.receiver.answers.clear()
        await harness.clock.turn(HOUR_MS / 1000)
    assert harness.receiver.arrived == ["2", "3"]


async def test_a_notification_on_the_desktop_is_given_up_after_minutes(harness: Harness) -> None:
    harness.receiver.answers[DESKTOP] = lambda _: DOWN
    await harness.send(message("1", DESKTOP), seconds=5 * MINUTE_MS / 1000 + 1)
    assert harness.outbox_sender.dead == 1
    assert await harness.store.outbox.targets() == []


async def test_attempts_go_on_where_an_earlier_daemon_had_left_off(harness: Harness) -> None:
    harness.receiver.answers[HOOK] = in_turn(DOWN, DOWN, DOWN)
    await harness.send(message("1"), seconds=7)
    assert [round(at) for at in harness.seconds_of("1")] == [0, 2, 6]

    harness.outbox_sender = harness.make_sender()
    async with harness.at_work():
        await harness.clock.turn(6.9)
        assert len(harness.seconds_of("1")) == 3
        await harness.clock.turn(1)
    assert harness.receiver.arrived == ["1"]
    assert len(set(harness.receiver.deliveries)) == 1


async def test_a_message_whose_sending_was_cut_off_is_sent_again_with_its_name(harness: Harness) -> None:
    harness.receiver.hung.add(HOOK)
    await harness.send(message("1"), seconds=1)
    harness.receiver.hung.clear()
    harness.outbox_sender = harness.make_sender()
    async with harness.at_work():
        pass

    assert harness.receiver.arrived == ["1"]
    first, second = harness.receiver.deliveries
    assert first == second


async def test_at_a_stop_what_is_under_way_ends_and_nothing_more_begins(harness: Harness) -> None:
    slow, taken = asyncio.Event(), harness.receiver.send

    async def send(sent: QueuedMessage) -> DeliveryFailure | None:
        if sent.target == HOOK:
            await slow.wait()
        return await taken(sent)

    harness.outbox_sender.send = send
    async with harness.at_work():
        await harness.add(message("1"), message("2"))
        await harness.clock.turn()
        stopping = asyncio.create_task(harness.outbox_sender.wind_down(2))
        await harness.clock.turn(1)
        assert not stopping.done()
        slow.set()
        await harness.clock.turn()
        assert stopping.done()
        await harness.add(message("3", OTHER_HOOK))
        await harness.clock.turn(60)

    assert harness.receiver.arrived == ["1"]
    assert await harness.store.outbox.targets() == [HOOK, OTHER_HOOK]


async def test_a_stop_waits_no_longer_than_it_may_for_one_that_hangs(harness: Harness) -> None:
    harness.receiver.hung.add(HOOK)
    async with harness.at_work():
        await harness.add(message("1"))
        await harness.clock.turn()
        stopping = asyncio.create_task(harness.outbox_sender.wind_down(2))
        await harness.clock.turn(1.9)
        assert not stopping.done()
        await harness.clock.turn(0.2)
        assert stopping.done()


async def test_what_the_store_finds_during_a_stop_is_left_for_the_next_daemon(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = harness.store.outbox.next

    async def find_slowly(target: Target, now_ms: int) -> QueuedMessage | None:
        await harness.outbox_sender.wind_down(2)
        return await find(target, now_ms)

    monkeypatch.setattr(harness.store.outbox, "next", lambda *of: asyncio.ensure_future(find_slowly(*of)))
    await harness.send(message("1"), seconds=60)

    assert harness.receiver.attempts == []
    assert await harness.store.outbox.targets() == [HOOK]


async def test_a_bug_in_sending_is_one_messages_trouble(harness: Harness) -> None:
    harness.receiver.answers[HOOK] = in_turn(ZeroDivisionError())
    async with harness.at_work():
        await harness.add(message("1"), message("2"))
        await harness.clock.turn(1)
        assert harness.receiver.arrived == ["2"]
        await harness.clock.turn(10)
    assert harness.receiver.arrived == ["2", "1"]


@pytest.mark.parametrize("error", [StoreError("the disk is full"), NoAccess("spyweb.db: no access as me")])
async def test_a_store_that_can_not_be_read_is_asked_again(
    error: SpywebError, harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    find, refusals = harness.store.outbox.next, [error]

    def refuse_once(target: Target, now_ms: int) -> asyncio.Future[QueuedMessage | None]:
        if refusals:
            raise refusals.pop()
        return asyncio.ensure_future(find(target, now_ms))

    monkeypatch.setattr(harness.store.outbox, "next", refuse_once)
    async with harness.at_work():
        await harness.add(message("1"))
        await harness.clock.turn(PATIENCE - 0.1)
        assert harness.receiver.arrived == []
        await harness.clock.turn(0.2)

    assert harness.receiver.arrived == ["1"]


async def test_what_has_arrived_is_not_sent_again_while_the_store_refuses(harness: Harness) -> None:
    async with harness.at_work():
        with harness.refused():
            await harness.add(message("1"), message("2"), message("3", OTHER_HOOK))
            await harness.clock.turn(HOUR_MS / 1000)
            assert sorted(harness.receiver.arrived) == ["1", "3"]
        await harness.clock.turn(PATIENCE)

    assert sorted(harness.receiver.arrived) == ["1", "2", "3"]
    assert await harness.store.outbox.targets() == []


async def test_one_miss_counts_once_however_often_the_store_refuses_it(harness: Harness) -> None:
    harness.receiver.answers[HOOK] = in_turn(DOWN, DOWN)
    async with harness.at_work():
        with harness.refused():
            await harness.add(message("1"), message("2"))
            await harness.clock.turn(HOUR_MS / 1000 - 1)
            assert harness.seconds_of("1") == [0]
        await harness.clock.turn(MINUTE_MS / 1000)

    assert [round(at) for at in harness.seconds_of("1")] == [0, 3602, 3606]
    assert harness.receiver.arrived == ["1", "2"]


async def test_what_is_given_up_is_not_sent_again_while_the_store_refuses(harness: Harness) -> None:
    harness.receiver.answers[HOOK] = lambda _: DOWN
    async with harness.at_work():
        await harness.add(message("1"))
        harness.clock.jump(DAY_MS / 1000)
        with harness.refused():
            await harness.clock.turn(MINUTE_MS / 1000)
        await harness.clock.turn(PATIENCE)

        assert len(harness.seconds_of("1")) == 1
        assert harness.outbox_sender.dead == 1


@pytest.mark.parametrize("back_ms", [3 * DAY_MS, 2 * HOUR_MS])
async def test_a_clock_that_is_set_back_delays_nothing_by_as_much(harness: Harness, back_ms: int) -> None:
    harness.receiver.answers[HOOK] = in_turn(DOWN)
    async with harness.at_work():
        await harness.add(message("1"))
        await harness.clock.turn(1)
        harness.clock.jump(-back_ms / 1000)
        await harness.clock.turn(MINUTE_MS / 1000)

    assert harness.receiver.arrived == ["1"]


async def test_a_round_without_deliver_is_one_jobs_and_passes_no_message_of_another(harness: Harness) -> None:
    news = JobId("news")
    await harness.store.outbox.add(
        [message("1", job=news), message("2"), message("3", DESKTOP), message("4", OTHER_HOOK)]
    )
    await harness.add(message("5", OTHER_HOOK, job=news))
    await harness.outbox_sender.send_due(PRICES, 5)

    assert sorted(harness.receiver.arrived) == ["3", "4"]


async def test_a_round_without_deliver_sends_what_is_due_and_waits_neither_for_retries_nor_for_a_receiver_that_hangs(
    harness: Harness,
) -> None:
    harness.receiver.hung.add(HOOK)
    harness.receiver.answers[DESKTOP] = in_turn(DOWN)
    await harness.add(message("1"), message("2", OTHER_HOOK), message("3", DESKTOP), message("4", DESKTOP))
    assert len(await harness.outbox_sender.due(PRICES)) == 4
    sending = asyncio.create_task(harness.outbox_sender.send_due(PRICES, 5))
    await harness.clock.turn(4.9)
    assert not sending.done()
    await harness.clock.turn(0.2)
    assert sending.done()
    assert harness.receiver.arrived == ["2"]
    assert await harness.store.outbox.targets() == [DESKTOP, HOOK]


async def test_a_round_without_deliver_ends_where_the_store_refuses(harness: Harness) -> None:
    await harness.add(message("1"), message("2"), message("3", OTHER_HOOK))
    with harness.refused():
        await harness.outbox_sender.send_due(PRICES, 5)

    assert sorted(harness.receiver.arrived) == ["1", "3"]


async def test_the_dead_are_counted_and_forgotten(harness: Harness) -> None:
    (number,) = await harness.add(message("1"))
    await harness.store.outbox.give_up(number, error="")
    async with harness.at_work():
        assert harness.outbox_sender.dead == 1
        assert await harness.outbox_sender.counts() == (0, None, 1)
        await harness.outbox_sender.prune(harness.clock.now_ms())
        assert harness.outbox_sender.dead == 1
        await harness.outbox_sender.prune(harness.clock.now_ms() + SECOND_MS)
        assert harness.outbox_sender.dead == 0


async def test_a_message_added_while_the_store_finds_none_is_sent(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    find, late = harness.store.outbox.next, [message("2")]

    async def find_slowly(target: Target, now_ms: int) -> QueuedMessage | None:
        found = await find(target, now_ms)
        if found is None and late:
            await harness.add(late.pop())
            await until_told()
        return found

    monkeypatch.setattr(harness.store.outbox, "next", lambda *of: asyncio.ensure_future(find_slowly(*of)))
    await harness.send(message("1"), seconds=1)

    assert harness.receiver.arrived == ["1", "2"]


async def test_a_target_that_has_nothing_left_keeps_no_task(harness: Harness) -> None:
    before = len(asyncio.all_tasks())
    async with harness.at_work():
        for number in range(50):
            await harness.add(message("x", HOOK._replace(address=f"http://hooks.example/{number}")))
        await harness.clock.turn(1)

        assert len(asyncio.all_tasks()) == before + 1
        assert len(harness.receiver.arrived) == 50


async def test_what_a_watcher_was_to_be_told_is_dropped_after_an_hour_and_nobody_is_bothered_with_it() -> None:
    h, target = Harness(), Target(Channel.PING, PRICES)
    h.receiver.answers[target] = lambda _: DOWN
    await h.store.outbox.add([NewMessage(job=PRICES, target=target, payload=b"ping"), message("other")])
    async with h.at_work():
        await h.clock.turn(3599)
        assert [each.payload for each in await h.store.outbox.unsent(None, 9)] == [b"ping"], "nothing waits behind it"
        await h.clock.turn(60)
    assert await h.store.outbox.unsent(None, 9) == []
    assert (h.outbox_sender.dead, h.receiver.arrived) == (0, ["other"])
    assert h.seconds_of("ping")[-1] == 3600


# Several nodes


async def test_a_node_sends_what_lies_in_its_slots_and_takes_up_and_leaves_it_with_them(harness: Harness) -> None:
    slot, desktop = slot_of(f"webhook:{HOOK.address}"), Target(Channel.DESKTOP, "fra")
    harness.ownership.owned, harness.ownership.node = set(), "fra"
    async with harness.at_work():
        await harness.add(message("1"), message("2", desktop), message("3", Target(Channel.DESKTOP, "ams")))
        await harness.add(message("ping", Target(Channel.PING, "prices")))
        await harness.clock.turn()
        assert harness.receiver.arrived == ["2"]

        harness.ownership.owned.add(slot)
        harness.outbox_sender.look()
        await harness.clock.turn()
        assert harness.receiver.arrived == ["2", "1"]
        harness.ownership.owned.add(slot_of("prices"))
        harness.outbox_sender.look()
        await harness.clock.turn()
        assert harness.receiver.arrived.pop() == "ping"

        harness.receiver.answers[HOOK] = in_turn(DOWN)
        await harness.add(message("4"))
        await harness.clock.turn()
        harness.ownership.owned.clear()
        await harness.clock.turn(60)
        assert harness.receiver.arrived == ["2", "1"]
        assert len(await harness.store.outbox.targets()) == 2


async def test_nothing_is_sent_while_another_node_may_send_it(harness: Harness) -> None:
    harness.ownership.trusted_until = harness.clock.boottime()
    async with harness.at_work():
        await harness.add(message("1"))
        await harness.clock.turn(30)
        assert harness.receiver.attempts == []
        harness.ownership.trusted_until += 60
        await harness.clock.turn(5)
        assert harness.receiver.arrived == ["1"]


async def test_a_slot_is_busy_while_something_is_sent_to_a_target_of_it(harness: Harness) -> None:
    harness.receiver.hung.add(HOOK)
    async with harness.at_work():
        await harness.add(message("1"))
        await harness.clock.turn()
        assert harness.outbox_sender.busy_slots() == {slot_of(f"webhook:{HOOK.address}")}
