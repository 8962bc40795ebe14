"""Incidents, in every kind of store: what is true is led by events, and channels are led to what is true."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import pytest
from msgspec.structs import replace

from spyweb.incidents.policy import AlertPolicy, Level
from spyweb.incidents.truth import Event, Failed, Removed, SignSeen, Succeeded
from spyweb.model import Outcome, RunId
from spyweb.store.model.incidents import AlertChannelNow, Note, SubjectChange, SubjectEvent, SubjectNow
from spyweb.store.model.messages import Channel, Target
from spyweb.store.model.runs import Change
from spyweb.store.sqlite.store import Store
from tests.fakes.changes import make_end, start_run
from tests.fakes.clock import FakeClock
from tests.fakes.stores import ENGINES, until_told

STORES = ENGINES

JOB = "job:backup"
PHONE = AlertChannelNow(name="phone")
POLICY = AlertPolicy(to=("phone",), after_failures=1, remind_ms=None)
SUBJECTS: Mapping[str, SubjectNow] = {JOB: SubjectNow(policy=POLICY)}


def happened(event: Event, subject: str = JOB, at_ms: int = 1_000, policy: AlertPolicy = POLICY) -> SubjectEvent:
    return SubjectEvent(subject=subject, event=event, policy=policy, at_ms=at_ms)


async def note(store: Store, *events: Event) -> SubjectChange:
    return (await store.incidents.note([happened(event) for event in events]))[-1]


async def plan(store: Store, clock: FakeClock, *channels: AlertChannelNow) -> Sequence[dict[str, object]]:
    """Plan ten seconds later; return the items of new messages to the phone."""
    clock.advance(10)
    await store.incidents.plan(channels or [PHONE], SUBJECTS)
    found = []
    while (message := await store.outbox.next(Target(Channel.ALERT, "phone"), clock.now_ms())) is not None:
        await store.outbox.done(message.id)
        found += msgspec.json.decode(message.payload)["items"]
    return found


async def test_a_failure_opens_an_incident_and_a_success_closes_it(store: Store) -> None:
    failed = await note(store, Failed("no disk"))
    assert (failed.opened, failed.is_known) == (True, True)
    assert await store.incidents.known() == {JOB: None}

    (incident,) = await store.incidents.list(is_open=True)
    assert incident == await store.incidents.get(incident.id)
    assert (incident.subject, incident.level, incident.reason, incident.text) == (
        JOB,
        Level.WARNING,
        "failing",
        "no disk",
    )

    ended = await note(store, Succeeded())
    assert (ended.closed, ended.is_known, ended.incident) == (True, False, incident.id)
    assert await store.incidents.known() == {}
    assert await store.incidents.list(is_open=True) == []
    assert [each.closed_ms for each in await store.incidents.list(is_open=False)] == [1_000]


async def test_the_end_of_a_run_and_what_it_means_are_one_commit(store: Store) -> None:
    heard: list[SubjectChange] = []
    store.incidents.on_committed(heard.extend)
    run = await start_run(store)
    end = msgspec.structs.replace(make_end(run, outcome=Outcome.FAILED), alert=happened(Failed("no disk")))
    await store.runs.record(Change(end=[end]))
    await until_told()

    assert [(change.subject, change.opened) for change in heard] == [(JOB, True)]
    assert len(await store.incidents.list()) == 1


async def test_an_end_that_does_not_apply_means_nothing(store: Store) -> None:
    run = await start_run(store)
    await store.runs.record(Change(end=[make_end(run)]))
    for late in (run, RunId(9_999)):
        end = msgspec.structs.replace(make_end(late), alert=happened(Failed("no disk")))
        await store.runs.record(Change(end=[end]))
    assert await store.incidents.list() == []


async def test_a_channel_is_told_only_what_is_grave_enough(store: Store, clock: FakeClock) -> None:
    await note(store, Failed("no disk"))
    assert await plan(store, clock, AlertChannelNow(name="phone", level=Level.CRITICAL)) == []
    await note(store, Succeeded())
    await plan(store, clock, AlertChannelNow(name="phone", level=Level.CRITICAL))
    assert await store.incidents.unsettled() == []


async def test_a_graver_sign_raises_an_open_incident_and_a_lesser_one_does_not_lower_it(
    store: Store, clock: FakeClock
) -> None:
    quiet = replace(POLICY, level=Level.INFO)
    await store.incidents.note([happened(SignSeen("template", "no such name"), policy=quiet)])
    grave = AlertChannelNow(name="phone", level=Level.WARNING)
    assert await plan(store, clock, grave) == []
    await store.incidents.note([happened(SignSeen("down", "refused"), at_ms=2_000)])
    (told,) = await plan(store, clock, grave)
    assert (told["kind"], told["level"], told["reason"], told["text"]) == ("opened", "warning", "down", "refused")
    await store.incidents.note([happened(SignSeen("address", "no such host"), at_ms=3_000, policy=quiet)])
    (incident,) = await store.incidents.list(is_open=True)
    assert (incident.level, incident.reason, incident.since_ms) == (Level.WARNING, "down", 1_000)
    assert await plan(store, clock, grave) == []


async def test_who_waits_for_messages_to_a_channel_hears_of_them(store: Store, clock: FakeClock) -> None:
    heard: list[Target] = []
    store.outbox.on_committed(heard.extend)
    await note(store, Failed(""))
    await plan(store, clock)
    await until_told()
    assert heard == [Target(Channel.ALERT, "phone")]


async def test_a_clock_that_is_set_back_ends_a_silence_instead_of_lengthening_it(
    store: Store, clock: FakeClock
) -> None:
    await store.incidents.silence(JOB, 60_000, "ada")
    clock.jump(-3_600)
    await store.incidents.note([happened(Failed(""), at_ms=clock.now_ms())])
    assert [item["kind"] for item in await plan(store, clock)] == ["opened"]


async def test_the_end_of_a_silence_leaves_nothing_of_a_subject_that_is_well(store: Store) -> None:
    await store.incidents.silence(JOB, 60_000, "ada")
    await store.incidents.silence(JOB, None, "ada")
    assert await store.incidents.known() == {}


async def test_a_subject_of_which_nothing_is_given_is_named_and_waits(store: Store, clock: FakeClock) -> None:
    await note(store, Failed(""))
    planned = await store.incidents.plan([PHONE], {})
    assert (planned.messages, planned.unknown) == (0, (JOB,))


async def test_more_than_ten_at_once_are_one_message_that_names_twenty(store: Store, clock: FakeClock) -> None:
    subjects = {f"job:{number}": SubjectNow(policy=POLICY) for number in range(30)}
    await store.incidents.note([happened(Failed(""), subject, clock.now_ms()) for subject in subjects])
    clock.advance(10)
    planned = await store.incidents.plan([PHONE], subjects)
    message = await store.outbox.next(Target(Channel.ALERT, "phone"), clock.now_ms())
    assert message is not None
    facts = msgspec.json.decode(message.payload)
    assert (planned.messages, facts["count"], len(facts["items"]), message.job) == (1, 30, 20, "")


async def test_a_list_can_be_asked_for_one_subject_and_page_by_page(store: Store) -> None:
    for subject in ("job:a", "job:b", "job:a"):
        await store.incidents.note([happened(Failed(""), subject), happened(Removed(), subject)])
    newest, *_ = await store.incidents.list(limit=1)
    assert [each.subject for each in await store.incidents.list(before=newest.id)] == ["job:b", "job:a"]
    assert len(await store.incidents.list(subjects=["job:a"])) == 2


async def test_those_that_are_open_are_told_in_a_line_each(store: Store) -> None:
    await store.incidents.note([happened(Failed("no disk"), subject=f"job:j{n}") for n in range(3)])
    await store.incidents.note([happened(Succeeded(), subject="job:j1")])
    await store.incidents.acknowledge(3, "anna")
    newest, oldest = await store.incidents.all_open(10)
    assert (newest.id, newest.subject, newest.acked_by) == (3, "job:j2", "anna")
    assert (oldest.id, oldest.level, oldest.reason, oldest.since_ms, oldest.acked_ms) == (
        1,
        Level.WARNING,
        "failing",
        1_000,
        None,
    )
    assert [each.id for each in await store.incidents.all_open(1)] == [3]


async def test_history_is_kept_and_bounded(store: Store) -> None:
    await note(store, Failed(""), *(SignSeen(f"sign {number}", "x") for number in range(60)))
    (incident,) = await store.incidents.list()
    assert len(incident.notes) == 50
    assert incident.notes[-1].text == "sign 59: x"


async def test_what_is_long_over_is_deleted_once_nobody_has_to_be_told(store: Store, clock: FakeClock) -> None:
    await note(store, Failed(""), Succeeded())
    assert await store.incidents.prune(older_than_ms=2_000) == 0
    await plan(store, clock)
    assert await store.incidents.prune(older_than_ms=1_000) == 0
    assert await store.incidents.prune(older_than_ms=2_000) == 1
    assert await store.incidents.list() == []


async def test_an_open_incident_says_how_its_subject_stands(store: Store, clock: FakeClock) -> None:
    await note(store, Failed("no disk"), SignSeen("late", "not begun"), Failed("no space"))
    await store.incidents.silence(JOB, 60_000, "me")
    (found,) = await store.incidents.list()
    assert (found.failures, found.signs) == (2, {"failing": (1_000, "no space"), "late": (1_000, "not begun")})
    assert found.silence == (clock.now_ms() + 60_000, 60_000, "me")
    assert await store.incidents.open_among([JOB, "job:other"]) == {JOB: found.id}

    await note(store, Removed())
    (over,) = await store.incidents.list()
    assert (over.is_gone, [each.text for each in over.notes][-1:]) == (True, ["removed or disabled"])
    assert replace(over, notes=[Note(1, "gone, or was switched off")]).is_gone, "as an older version has noted it"
    assert not found.is_gone
    assert (over.failures, over.signs, over.silence) == (0, {}, None)
    assert await store.incidents.open_among([JOB]) == {}


async def test_of_incidents_those_are_found_that_were_open_at_a_moment_or_later(store: Store) -> None:
    for number, ended_ms in (("a", 2_000), ("b", 3_000)):
        of = f"job:{number}"
        await store.incidents.note([happened(Failed("x"), of, 1_000), happened(Succeeded(), of, ended_ms)])
    await store.incidents.note([happened(Failed("x"), "job:c", 1_000)])

    async def found(since_ms: int, *, is_open: bool | None = None) -> list[str]:
        return [each.subject for each in await store.incidents.list(since_ms=since_ms, is_open=is_open)]

    assert await found(2_000) == ["job:c", "job:b", "job:a"]
    assert await found(2_001) == ["job:c", "job:b"]
    assert await found(9_000) == ["job:c"]
    assert await found(2_001, is_open=False) == ["job:b"]
    assert await found(9_000, is_open=True) == ["job:c"]


@pytest.mark.parametrize(("end", "gone"), [(Removed(), True), (Succeeded(), False)])
async def test_a_message_says_whether_it_is_over_since_its_subject_is_gone(
    store: Store, clock: FakeClock, end: Event, gone: bool
) -> None:
    await note(store, Failed("no disk"))
    assert [item["gone"] for item in await plan(store, clock)] == [False]
    await note(store, end)
    assert [(item["kind"], item["gone"]) for item in await plan(store, clock)] == [("closed", gone)]
