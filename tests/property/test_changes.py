"""Live pages under any order of changes, ticks, cuts and waits: once told and fetched, a page is as things are."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spyweb.events import hub as events
from spyweb.events.changes import TICK_S, ChangeHub, PageFollower, Shows
from spyweb.events.hub import LINGER_S
from spyweb.model import JobId
from tests.fakes.clock import FakeClock
from tests.fakes.listening import Listening

ROWS = Shows((("row-*", ("job:*",)),))
JOBS = st.sampled_from([JobId(name) for name in "abcd"])
STEPS = st.one_of(
    st.tuples(st.just("change"), st.lists(JOBS, min_size=1, max_size=8)),
    st.tuples(st.sampled_from(["cut", "come back"]), st.none()),
    st.tuples(st.just("wait"), st.sampled_from([TICK_S, 3.0, LINGER_S + TICK_S, 3 * LINGER_S])),
)


@pytest.mark.parametrize("most", [4, 2_000])
@given(steps=st.lists(STEPS, max_size=30))
def test_a_page_ends_as_things_are(most: int, steps: list[tuple[str, object]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(events, "MOST_KEPT", most)
        asyncio.run(follow(steps))


async def follow(steps: list[tuple[str, object]]) -> None:
    listening = Listening(clock=FakeClock())
    hub = ChangeHub(events=listening.hub, clock=listening.clock, last_lines=lambda *_: asyncio.sleep(0, []))
    now, shown, mark = dict[str, int](), dict[str, int](), hub.mark(ROWS)

    def fetch() -> None:
        nonlocal mark
        parts = hub.changed(ROWS, mark)
        mark = hub.mark(ROWS)
        shown.update(now if parts is None else {part: now[part] for part in parts})

    page: PageFollower | None = None
    for step, about in [*steps, ("come back", None), ("wait", 2 * TICK_S)]:
        if step == "change" and isinstance(about, list):
            for job in about:
                now[f"row-{job}"] = now.get(f"row-{job}", 0) + 1
                listening.run(job)
        elif step == "cut" and page:
            page.leave()
            page = None
        elif step == "come back" and page is None:
            page = hub.follow(ROWS, mark, fetch)
        elif isinstance(about, float):
            await listening.clock.turn(about)
            assert page is None or shown == now
