"""Play many games of both worlds, on all processors:  python -m tests.simulation [--seeds N | --seed N] [--seconds S]

Ends with 1 where a promise is broken, after printing which, the seed, and the shortest history found that still breaks
one.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed
from itertools import product

from tests.fakes.simulation.alone import Alone
from tests.fakes.simulation.game import Game, be_quiet, play, shrink
from tests.fakes.simulation.world import World

WORLDS: dict[str, type[Game]] = {"alone": Alone, "cluster": World}
TOGETHER = 5  # games, for each answer of a process
YEAR_S = 365.25 * 86_400
STEP = 0.1  # of all games, between two lines where nobody watches


def play_some(world: str, first: int, end: int) -> tuple[Counter[str], float, int | None]:
    """Return what has happened in these games, the seconds that have passed, and the seed that has failed."""
    tally, seconds = Counter[str](), 0.0
    for seed in range(first, end):
        game = play(WORLDS[world], seed)
        tally.update(game.tally)
        tally["games"] += 1
        seconds += game.seconds
        if game.broken:
            return tally, seconds, seed
    return tally, seconds, None


def show_failure(world: str, seed: int) -> bool:
    """Play one game; where it fails, print the shortest history that does."""
    be_quiet()
    game = play(WORLDS[world], seed)
    if not game.broken:
        return False
    steps = len(game.script)
    game = shrink(game)
    sys.stdout.write(f"\n{world}, seed {seed}: {len(game.script)} of its {steps} steps are enough:\n\n")
    sys.stdout.write("\n".join(game.story))
    sys.stdout.write(f"\n\nagain: make simulate SEED={seed}\n")
    return True


class Report:
    """One line that counts, and the last lines."""

    def __init__(self, games: int) -> None:
        self._games, self._began, self._shown = games, time.monotonic(), 0.0
        self.tally, self._virtual_s = Counter[str](), 0.0

    def add(self, tally: Counter[str], seconds: float) -> None:
        self.tally.update(tally)
        self._virtual_s += seconds
        share = self.tally["games"] / self._games
        if sys.stdout.isatty() or share >= self._shown + STEP:
            self._shown = share - share % STEP
            bar = "#" * round(share * 30)
            line = f"[{bar:30}] {self.tally['games']:,} of {self._games:,} games, {self.tally['crashes']:,} crashes"
            sys.stdout.write(f"\r{line}" if sys.stdout.isatty() else f"{line}\n")
            sys.stdout.flush()

    def end(self, failed: int) -> None:
        took_s, tally = time.monotonic() - self._began, self.tally
        minutes, years = took_s / 60, self._virtual_s / YEAR_S
        sys.stdout.write(
            f"\n{tally['games']:,} games in {took_s:,.0f} s on {os.cpu_count()} processors: "
            f"{tally['games'] / minutes:,.0f} games a minute\n"
            f"{years:,.2f} years of virtual time, {years / minutes:,.2f} a minute; {tally['crashes']:,} crashes, "
            f"{tally['commits']:,} commits, {tally['runs']:,} runs\n"
            f"{f'{failed} games broke a promise' if failed else 'every promise held'}\n"
        )


def simulate(seeds: int, seconds: float | None) -> int:
    """Play so many seeds of each world, or as many as there is time for; return the exit code."""
    report, failed = Report(seeds * len(WORLDS)), list[tuple[str, int]]()
    ends = time.monotonic() + seconds if seconds else None
    with ProcessPoolExecutor(os.cpu_count(), initializer=be_quiet) as pool:
        parts = product(range(0, seeds, TOGETHER), WORLDS)
        games = {pool.submit(play_some, world, first, min(first + TOGETHER, seeds)): world for first, world in parts}
        for done in as_completed(games):
            tally, virtual_s, seed = done.result()
            report.add(tally, virtual_s)
            if seed is not None:
                failed.append((games[done], seed))
            if failed or (ends is not None and time.monotonic() > ends):
                pool.shutdown(wait=False, cancel_futures=True)
                break
    report.end(len(failed))
    for world, seed in failed:
        show_failure(world, seed)
    return 1 if failed else 0


def main() -> int:
    parser = argparse.ArgumentParser(description="whole daemons through seeds of misfortune, in virtual time")
    parser.add_argument("--seeds", type=int, default=1_000, help="so many of each world (1000)")
    parser.add_argument("--seconds", type=float, help="end after so long")
    parser.add_argument("--seed", type=int, help="this one again, in both worlds")
    given = parser.parse_args()
    if given.seed is not None:
        broken = [world for world in WORLDS if show_failure(world, given.seed)]
        sys.stdout.write("" if broken else "every promise held\n")
        return 1 if broken else 0
    return simulate(given.seeds, given.seconds)


if __name__ == "__main__":
    sys.exit(main())
