"""Whatever fails, each promise of invariants.py holds: three nodes on one database, and a daemon alone on its disk.

The scheduler, the runner, the live jobs, the reloader, the loops of a node, locks, incidents, the outbox and the store
are the real ones, in virtual time.  Each seed is a game, the same each time.  `make simulate` plays many.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fakes.simulation import disk
from tests.fakes.simulation.alone import Alone
from tests.fakes.simulation.game import Game, Step, be_quiet, find, play, shrink
from tests.fakes.simulation.invariants import PROMISES, Promise
from tests.fakes.simulation.mutants import MUTANTS, Mutant
from tests.fakes.simulation.planted_alone import leases_of_the_living_end
from tests.fakes.simulation.world import World

ROOT = Path(__file__).parents[2]
SEEDS = {World: 20, Alone: 12}  # about eight seconds
MORE_SEEDS, AT_ONCE = 2_000, 100
WINDOW = 60  # statements and commits, each of which fails in a game of its own
CHEAP = 5  # games: a fault that is found within them is planted each time


@pytest.fixture(autouse=True)
def quiet() -> None:
    be_quiet()


def first_broken(kind: type[Game], seeds: range) -> str:
    game = find(kind, seeds)
    return f"seed {game.seed}: {game.broken}" if game else ""


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", SEEDS)
def test_whatever_fails_every_promise_holds(kind: type[Game]) -> None:
    assert first_broken(kind, range(SEEDS[kind])) == ""


@pytest.mark.deep
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", SEEDS)
@pytest.mark.parametrize("first", range(0, MORE_SEEDS, AT_ONCE))
def test_whatever_fails_every_promise_holds_in_many_games(first: int, kind: type[Game]) -> None:
    assert first_broken(kind, range(first, first + AT_ONCE)) == ""


@pytest.mark.deep
@pytest.mark.timeout(600)
@pytest.mark.parametrize("how", disk.HOW)
def test_any_statement_and_any_commit_may_fail(how: str) -> None:
    for number in range(1, WINDOW):
        script = [Step(1.0, "fail_disk", f"{how} {number}", 0), Step(1_200.0, "resume", "", 0)]
        game = play(Alone, 0, script)
        assert game.broken == "", number
        assert game.tally["crashes"] == how.endswith("dies"), number


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "mutant",
    [pytest.param(each, id=each.name, marks=pytest.mark.deep if each.seeds > CHEAP else ()) for each in MUTANTS],
)
def test_a_planted_fault_is_found_within_so_many_games(mutant: Mutant) -> None:
    with mutant.plant():
        found = find(mutant.world, range(mutant.seeds))
    assert found
    assert found.promise, found.broken


@pytest.mark.slow
@pytest.mark.parametrize("kind", SEEDS)
def test_a_seed_plays_the_same_game_again(kind: type[Game]) -> None:
    first, second = play(kind, 7), play(kind, 7)
    assert first.story == second.story
    assert first.tally == second.tally


@pytest.mark.slow
def test_a_history_that_fails_is_shown_without_what_does_not_matter() -> None:
    with leases_of_the_living_end():
        found = find(Alone, range(CHEAP))
        assert found
        shortest = shrink(found)
    assert shortest.broken
    assert len(shortest.script) < len(found.script) / 2
    assert shortest.story[-1].endswith(shortest.broken)


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.words[:40])
def test_a_promise_stands_in_the_docs(promise: Promise) -> None:
    assert " ".join(promise.words.split()) in " ".join((ROOT / promise.file).read_text().split())
