"""A game: a world follows a script of misfortunes, and is judged all the while.

All of it is by the seed, so a game can be played again, also with fewer steps: see `shrink`.
"""

from __future__ import annotations

import asyncio
import logging
from asyncio import TaskGroup
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from random import Random
from typing import Any, ClassVar, NamedTuple, TypeVar

import structlog

from spyweb.errors import Refused, StoreError
from tests.fakes.simulation.invariants import Broken, Promise
from tests.fakes.simulation.virtual_time import VirtualLoop

ROUNDS = 10  # of the loop, in which all tasks have begun


class Step(NamedTuple):
    """One misfortune."""

    after_s: float  # since the one before
    what: str  # the name of a method
    where: str  # a machine; empty where there is one only
    seed: int  # of its choices


class Game:
    """A world, for as long as one game."""

    STEPS: ClassVar[dict[str, int]]  # what may happen, and how often

    def __init__(self, seed: int, script: Sequence[Step] | None = None) -> None:
        self.seed, self.dice = seed, Random(seed)
        self.script = self.draw(Random(f"{seed}")) if script is None else script
        self.broken = ""  # how a promise is
        self.promise: Promise | None = None  # which; None where there was an internal error
        self.story: list[str] = []
        self.tally = Counter[str]()
        self.seconds = 0.0  # that have passed

    def draw(self, dice: Random) -> Sequence[Step]:
        """Return a script."""
        raise NotImplementedError

    async def begin(self) -> None:
        """Start what lives in this world."""
        raise NotImplementedError

    async def recover(self) -> None:
        """Mend everything, and judge whether all works again after a while."""

    def end_all(self) -> None:
        """End what lives in this world, as `kill -9` does."""
        raise NotImplementedError

    async def play(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._over = self.loop.create_future()
        self.loop.set_exception_handler(self._note_error)
        async with TaskGroup() as self.tasks:
            script = self.tasks.create_task(self._follow())
            await asyncio.wait([self._over, script], return_when=asyncio.FIRST_COMPLETED)
            self.seconds = self.loop.time()
            self.end_all()
            for _ in range(ROUNDS):
                await asyncio.sleep(0)
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()

    async def _follow(self) -> None:
        await self.begin()
        for step in self.script:
            await asyncio.sleep(step.after_s)
            self.tell(f"{step.what} {step.where}".rstrip())
            getattr(self, step.what)(step.where, Random(step.seed))
        await self.recover()

    def tell(self, what: object) -> None:
        """Note what has happened, for who reads the history of a failure."""
        self.story.append(f"{self.loop.time():12.3f} s  {what}")

    def judge(self, check: Callable[[], None]) -> None:
        """Make a check, which ends the game where a promise is broken."""
        try:
            if not self._over.done():
                check()
        except Broken as error:
            self.broken, self.promise = f"{error}", error.promise
            self.tell(f"BROKEN: {error}")
            self._over.set_result(None)

    def _note_error(self, _loop: object, context: Mapping[str, Any]) -> None:
        """Take an error of a callback; one that nobody has asked for is found whenever there is a collection."""
        if "never retrieved" not in context["message"] and not self._over.done():
            self.broken = f"internal error: {context['message']}: {context.get('exception')!r}"
            self.tell(self.broken)
            self._over.set_result(None)

    def spawn(self, work: Coroutine[object, object, object]) -> None:
        """Do some work of a daemon, which the store may refuse."""

        async def attempt() -> None:
            with suppress(StoreError, Refused):
                await work

        self.tasks.create_task(attempt())


G = TypeVar("G", bound=Game)


def be_quiet() -> None:
    """Write no log: a game would write thousands of lines."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))


def play(kind: type[G], seed: int, script: Sequence[Step] | None = None) -> G:
    """Play a game; an internal error breaks every promise."""
    game = kind(seed, script)
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        try:
            runner.run(game.play())
        except Exception as error:  # noqa: BLE001 - it has a seed, which is worth more than where it was raised
            game.broken = f"internal error: {innermost(error)!r}"
            game.story.append(game.broken)
    return game


def innermost(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def find(kind: type[G], seeds: Sequence[int]) -> G | None:
    """Return the first game in which a promise is broken."""
    return next((game for game in (play(kind, seed) for seed in seeds) if game.broken), None)


def shrink(game: G) -> G:
    """Return a game of the same seed that breaks the same promise, from whose script no part can be left out."""
    size = max(1, len(game.script) // 2)
    while size:
        at = 0
        while at < len(game.script):
            shorter = play(type(game), game.seed, [*game.script[:at], *game.script[at + size :]])
            if shorter.broken and shorter.promise == game.promise:
                game = shorter
            else:
                at += size
        size //= 2
    return game
