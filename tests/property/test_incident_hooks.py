"""Any life of a job and its daemons: on_down and on_up are called once for each incident, in their order."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from spyweb.alerts import measures
from spyweb.alerts.measures import IncidentHooks
from spyweb.incidents.policy import AlertPolicy, Flapping
from spyweb.incidents.telling import Told
from spyweb.model import JobId, Never, Overlap, Trigger
from spyweb.runs.runner import by_hand
from spyweb.store.model.incidents import ScriptTold
from tests.fakes.harness import Harness, harness, make_job
from tests.fakes.pool import FAILED, SUCCESS
from tests.fakes.signs import make_watcher

BACKUP = JobId("backup")
POLICIES = (
    AlertPolicy(after_failures=1),
    AlertPolicy(after_failures=2, after_successes=2),
    AlertPolicy(after_failures=1, flapping=Flapping(2, 60_000)),
)
# Whether the run fails, whether the functions do, the seconds after it, and whether the daemon then dies.
STEPS = st.lists(
    st.tuples(st.booleans(), st.booleans(), st.sampled_from([0.0, 0.01, 2.0, 90.0]), st.booleans()), max_size=25
)


async def live(steps: list[tuple[bool, bool, float, bool]], policy: AlertPolicy, overlap: Overlap) -> int:
    """Let a job live, and compare what its functions were told with its incidents; return how many there were."""
    calls: list[tuple[str, int]] = []
    before: Harness | None = None
    rest = [*steps, (False, False, 90.0, True)]
    while rest:
        async with harness(before.store if before else None, before.clock if before else None) as h:
            watcher = make_watcher(h)
            watcher.hooks = IncidentHooks(h.store.incidents, h.live, h.runner, h.clock)
            await watcher.load()
            job = make_job("backup", alerts=policy, schedule=Never(), overlap=overlap)
            job.code = replace(job.code, source=b"function on_down() end function on_up() end")
            await h.settle(job)
            await h.runner.take_up(await h.store.runs.open())
            planning = h.tasks.create_task(watcher.keep_up())
            dies = False
            while rest and not dies:
                fails, hooks_fail, seconds, dies = rest.pop(0)
                told = FAILED if hooks_fail else SUCCESS
                h.pool.endings[BACKUP] = [FAILED if fails else SUCCESS, told, told, told]
                h.runner.start(job, [by_hand()])
                await h.clock.turn(seconds)
            planning.cancel()
            calls += [(str(each.arguments[2]), each.arguments[3]["id"]) for each in h.pool.requests if is_hook(each)]  # type: ignore[index]
        before = h
    assert before
    incidents = list(reversed(await before.store.incidents.list(limit=1_000)))
    expected = []
    for incident in incidents:
        expected.append(("on_down", incident.id))
        expected += [] if incident.closed_ms is None else [("on_up", incident.id)]
    assert calls == expected
    return len(incidents)


def is_hook(request: object) -> bool:
    return getattr(request, "procedure", "") == "alert"


@given(STEPS, st.sampled_from(POLICIES), st.sampled_from(Overlap))
def test_each_function_is_called_once_for_each_incident_in_any_life(
    steps: list[tuple[bool, bool, float, bool]], policy: AlertPolicy, overlap: Overlap
) -> None:
    asyncio.run(live(steps, policy, overlap))


DAILY = [(True, False, 2.0, False), (True, True, 2.0, True), (False, False, 0.0, True), (True, False, 0.01, False)]


def test_a_day_of_it() -> None:
    assert asyncio.run(live(DAILY, POLICIES[0], Overlap.SKIP)) == 2


@pytest.mark.parametrize(
    ("place", "name", "mutant"),
    [
        (measures, "SCRIPTS", "nobody"),  # what is known is not looked at
        (measures, "ScriptTold", lambda incident, _: ScriptTold(incident, Told.CLOSED)),  # its end counts as told
        (Trigger, "is_aside", False),  # how it ends counts
    ],
)
def test_a_mutant_is_found(place: object, name: str, mutant: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(place, name, mutant)
    with pytest.raises((AssertionError, ExceptionGroup)):
        test_a_day_of_it()
