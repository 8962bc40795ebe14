"""The outbox of messages, in every kind of store: each waits until it has arrived or was given up."""

from __future__ import annotations

from msgspec import structs

from spyweb.model import JobId
from spyweb.store.model.messages import Channel, NewMessage, Target
from spyweb.store.model.runs import Change
from spyweb.store.sqlite.store import Store
from tests.fakes.changes import NEWS, PRICES, make_end, start_run
from tests.fakes.clock import FakeClock
from tests.fakes.findings import DESKTOP, HOOK, OTHER_HOOK, message, next_payload
from tests.fakes.stores import ENGINES, until_told

STORES = ENGINES


async def test_a_message_is_told_back_whole(store: Store, clock: FakeClock) -> None:
    (number,) = await store.outbox.add([message('{"a":"ä"}', job=NEWS)])
    found = await store.outbox.next(HOOK, clock.now_ms())

    assert found is not None
    assert (found.id, found.job, found.target, found.payload) == (number, NEWS, HOOK, '{"a":"ä"}'.encode())
    assert found.headers == (("Authorization", "Bearer x"),)
    assert (found.created_ms, found.next_ms) == (clock.now_ms(), clock.now_ms())
    assert (found.attempts, found.error) == (0, "")


async def test_of_several_that_hold_nothing_up_the_earliest_is_next(store: Store, clock: FakeClock) -> None:
    first, second = await store.outbox.add([message("1"), message("2")])
    await store.outbox.put_off(first, next_ms=clock.now_ms() + 2000, error="", holds=False)
    await store.outbox.put_off(second, next_ms=clock.now_ms() + 1000, error="", holds=False)

    assert await next_payload(store, clock.now_ms()) == "2"


async def test_pruning_leaves_what_waits(store: Store, clock: FakeClock) -> None:
    await store.outbox.add([message("1")])

    assert await store.outbox.prune(older_than_ms=clock.now_ms() + 1) == 0
    assert await next_payload(store, clock.now_ms()) == "1"


async def test_pruning_deletes_what_a_node_that_never_came_back_should_have_shown(
    store: Store, clock: FakeClock
) -> None:
    target = Target(Channel.DESKTOP, "fra")
    await store.outbox.add([message("1", target)])
    await store.outbox.prune(older_than_ms=clock.now_ms())
    assert await store.outbox.targets() == [target]
    await store.outbox.prune(older_than_ms=clock.now_ms() + 1)
    assert await store.outbox.targets() == []


async def test_what_was_done_may_be_done_again(store: Store, clock: FakeClock) -> None:
    (first,) = await store.outbox.add([message()])
    await store.outbox.done(first)
    await store.outbox.done(first)
    await store.outbox.put_off(first, next_ms=0, error="", holds=True)
    await store.outbox.give_up(first, error="")

    assert await store.outbox.targets() == []
    assert (await store.outbox.backlog()).dead == 0


async def test_what_waits_and_what_is_dead_is_listed_newest_first(store: Store, clock: FakeClock) -> None:
    first, second, third = await store.outbox.add([message("1"), message("2", job=NEWS), message("3")])
    await store.outbox.give_up(first, error="answered 500")
    found = await store.outbox.unsent(None, 10)

    assert [(each.id, each.dead_ms, each.error) for each in found] == [
        (third, None, ""),
        (second, None, ""),
        (first, clock.now_ms(), "answered 500"),
    ]
    assert [each.id for each in await store.outbox.unsent(PRICES, 10)] == [third, first]
    assert [each.id for each in await store.outbox.unsent(None, 1)] == [third]
    assert [each.id for each in await store.outbox.unsent(None, 10, before=third)] == [second, first]
    assert [each.id for each in await store.outbox.unsent(PRICES, 10, before=third)] == [first]


async def test_one_that_was_given_up_may_be_sent_again_as_if_it_were_new(store: Store, clock: FakeClock) -> None:
    told: list[Target] = []
    first, second = await store.outbox.add([message("1"), message("2", OTHER_HOOK)])
    await store.outbox.give_up(first, error="answered 500")
    await store.outbox.put_off(second, next_ms=clock.now_ms() + 60_000, error="down", holds=False)
    clock.advance(10)
    store.outbox.on_committed(told.extend)

    assert await store.outbox.retry(first) == [first]
    await until_told()
    assert told == [HOOK]
    found = await store.outbox.next(HOOK, clock.now_ms())
    assert found
    assert (found.id, found.attempts, found.dead_ms) == (first, 0, None)
    assert found.created_ms == found.next_ms == clock.now_ms()
    assert (await store.outbox.backlog()).dead == 0

    assert await store.outbox.retry(None) == [first, second]
    await until_told()
    assert told[1:] == [HOOK, OTHER_HOOK]
    waiting = await store.outbox.next(OTHER_HOOK, clock.now_ms())
    assert waiting
    assert (waiting.attempts, waiting.next_ms) == (1, clock.now_ms())
    assert waiting.created_ms == clock.now_ms() - 10_000
    assert await store.outbox.retry(99) == []


async def test_the_backlog_is_what_waits_and_since_when(store: Store, clock: FakeClock) -> None:
    assert await store.outbox.backlog() == (0, None, 0)
    began_ms = clock.now_ms()
    first, _ = await store.outbox.add([message("1"), message("2", OTHER_HOOK)])
    await clock.turn(10)
    (third,) = await store.outbox.add([message("3", DESKTOP)])
    assert await store.outbox.backlog() == (3, began_ms, 0)

    await store.outbox.done(first)
    await store.outbox.give_up(third, error="refused")
    assert await store.outbox.backlog() == (1, began_ms, 1)


async def test_what_only_an_absent_node_can_show_is_given_up_and_kept_for_a_while(
    store: Store, clock: FakeClock
) -> None:
    here, there = await store.outbox.add([message("1", DESKTOP), message("2", Target(Channel.DESKTOP, "fra"))])
    clock.advance(10)
    given_up_ms = clock.now_ms()
    await store.outbox.prune(older_than_ms=given_up_ms)
    assert [(each.id, each.error, each.dead_ms) for each in await store.outbox.unsent(None, 10)] == [
        (there, "its node has not come back", given_up_ms),
        (here, "", None),
    ]
    assert await store.outbox.prune(older_than_ms=given_up_ms + 1) == 1


async def test_what_waits_for_each_address_is_told_with_the_error_of_the_oldest(store: Store, clock: FakeClock) -> None:
    def to(name: str) -> NewMessage:
        return NewMessage(job=PRICES, target=Target(Channel.ALERT, name), payload=b"{}")

    began_ms = clock.now_ms()
    first, second, given_up = await store.outbox.add([to("ops"), to("phone"), to("phone")])
    clock.advance(5)
    await store.outbox.add([to("ops"), message("1", HOOK)])
    await store.outbox.put_off(first, next_ms=began_ms, error="answered 500", holds=True)
    await store.outbox.give_up(given_up, error="answered 400")
    assert await store.outbox.backlogs(Channel.ALERT) == {
        "ops": (2, began_ms, "answered 500"),
        "phone": (1, began_ms, ""),
    }
    await store.outbox.done(second)
    assert set(await store.outbox.backlogs(Channel.ALERT)) == {"ops"}


def ping(kind: str, job: JobId = PRICES) -> NewMessage:
    return NewMessage(job=job, target=Target(Channel.PING, job), payload=kind.encode(), headers=(("kind", kind),))


async def test_of_what_a_watcher_is_told_of_a_job_the_newest_of_each_kind_waits(store: Store) -> None:
    await store.outbox.add([ping("start"), ping("success"), ping("start", NEWS)])
    await store.outbox.add([ping("start")])
    waiting = await store.outbox.unsent(None, 10)
    assert [(each.id, each.job, each.payload) for each in waiting] == [
        (4, PRICES, b"start"),
        (3, NEWS, b"start"),
        (2, PRICES, b"success"),
    ]


async def test_what_a_watcher_is_told_of_an_end_is_recorded_with_it_and_announced(store: Store) -> None:
    announced: list[Target] = []
    store.outbox.on_committed(announced.extend)
    run = await start_run(store)
    end = structs.replace(make_end(run), ping=ping("success"))
    await store.runs.record(Change(end=[end]))
    await store.runs.record(Change(end=[end]))  # it has ended already
    (message,) = await store.outbox.unsent(None, 10)
    assert (message.target, message.payload) == (Target(Channel.PING, PRICES), b"success")
    await until_told()
    assert Target(Channel.PING, PRICES) in announced
