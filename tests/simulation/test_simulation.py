"""Three nodes on one database, in virtual time: whatever fails, each promise of invariants.py holds.

The scheduler, the runner, the live jobs, the work of slots, the loops of a node and the store are the real ones.  Each
seed is a game, the same each time.
"""

from __future__ import annotations

import logging

import pytest
import structlog

from spyweb import ownership
from tests.fakes.simulation import planted
from tests.fakes.simulation.planted import Planted
from tests.fakes.simulation.virtual_time import play
from tests.fakes.simulation.world import World

SEEDS, MORE_SEEDS, AT_ONCE = 30, 3_000, 150


@pytest.fixture(autouse=True)
def few_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have few slots, so that each has jobs, and no log: a game would write thousands of lines."""
    monkeypatch.setattr(ownership, "SLOTS", 8)
    monkeypatch.setattr(ownership, "LABEL_SLOTS", 2)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))


def find(seeds: range) -> str:
    """Return the first promise that is broken in these games."""
    return next(filter(None, (play(World(seed).play()) for seed in seeds)), "")


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_whatever_fails_every_promise_holds() -> None:
    assert find(range(SEEDS)) == ""


@pytest.mark.deep
@pytest.mark.parametrize("first", range(SEEDS, MORE_SEEDS, AT_ONCE))
def test_whatever_fails_every_promise_holds_in_many_games(first: int) -> None:
    assert find(range(first, first + AT_ONCE)) == ""


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("plant", "seeds"),
    [
        (planted.without_fence, 30),
        (planted.fenced_before, 30),
        pytest.param(planted.shared_lock, 200, marks=pytest.mark.deep),
        (planted.trust_by_wall_clock, 60),
        (planted.no_trust, 30),
        (planted.taking_from_the_living, 10),
        (planted.giving_beside_the_queue, 5),
        (planted.beginning_what_is_in_doubt, 5),
        (planted.skipping_in_silence, 5),
    ],
)
def test_a_planted_fault_is_found_within_so_many_games(plant: Planted, seeds: int) -> None:
    with plant():
        assert find(range(seeds))


def test_a_seed_plays_the_same_game_again() -> None:
    first, second = World(7), World(7)
    for world in (first, second):
        play(world.play())
    assert (first.runs, first.faults) == (second.runs, second.faults)
    assert first.database.commits == second.database.commits
