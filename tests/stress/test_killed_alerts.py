"""The daemon is killed between the end of a run and the message about it, again and again.

A brute force over the runs on record says what was wrong from when to when.  The incidents are that, and whoever is
told of them was told it all: what was sent twice bears one delivery id.
"""

from __future__ import annotations

import random
import sqlite3
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.alert_services import Services, open_services
from tests.fakes.http_server import Answer, Arrived
from tests.fakes.project import Project, eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2400)]

KILLS = 200
PATIENCE = 180.0  # seconds: a digest waits for a minute, and so does the next
PERIOD = "150ms"
FAILURES = 2  # in a row, and an incident opens
CONFIG = '[server]\nenabled = false\n[runs]\nkeep = 1000000\n[alerts]\nremind_every = "never"\n'
CHANNEL = '[channels.{job}]\nwebhook = "http://127.0.0.1:{port}/{job}"\n'
# Well for some runs, broken for some, in turn: each length is a job's own.
SCRIPT = 'if state.increment("{job}") // {length} % 2 == 1 then error("no space") end'
SETTINGS = 'every = "{period}"\nalerts = {{ to = ["{job}"], after_failures = {failures} }}'
ENDED = """
    SELECT job, outcome, ended_ms FROM run WHERE outcome IN ('success', 'failed', 'lost') ORDER BY id
"""
INCIDENTS = "SELECT subject, opened_ms, closed_ms FROM incident ORDER BY id"
# What is wrong, or over and not everybody knows it, and the messages that have not arrived.
NOT_TOLD = "SELECT (SELECT count(*) FROM incident WHERE is_settled = 0) + (SELECT count(*) FROM message)"

Span = tuple[int, int | None]


class Log:
    """Sorts what the receivers have got: the bodies of each delivery, and what was told of each incident, once."""

    def __init__(self, arrived: Sequence[Arrived]) -> None:
        self.bodies = defaultdict[str, list[bytes]](list)
        self.kinds = defaultdict[int, list[str]](list)
        self.unnamed = 0  # of digests
        for each in list(arrived):
            bodies = self.bodies[each.headers["X-SpyWeb-Delivery"]]
            bodies.append(each.body)
            if len(bodies) == 1:
                self._note(each.path.removeprefix("/"), each.json)

    def _note(self, job: str, message: Any) -> None:
        self.unnamed += message["count"] - len(message["items"])
        for item in message["items"]:
            assert item["subject"] == f"job:{job}", "told to another's channel"
            self.kinds[item["incident"]].append(item["kind"])


def spans(ends: Iterable[tuple[str, str, int]]) -> Mapping[str, list[Span]]:
    """Say from when to when each job was failing."""
    failures, found = defaultdict[str, int](int), defaultdict[str, list[Span]](list)
    for job, outcome, ended_ms in ends:
        failures[job] = 0 if outcome == "success" else failures[job] + 1
        is_open = bool(found[job]) and found[job][-1][1] is None
        if failures[job] >= FAILURES and not is_open:
            found[job].append((ended_ms, None))
        elif outcome == "success" and is_open:
            found[job][-1] = (found[job][-1][0], ended_ms)
    return found


def query(root: Path, statement: str) -> Sequence[tuple[Any, ...]]:
    with closing(sqlite3.connect(root / "data/spyweb.db")) as connection:
        return connection.execute(statement).fetchall()


@dataclass
class Lives:
    project: Project
    arrived: list[Arrived]
    kills: int

    def live(self, dice: random.Random) -> int:
        """Kill the daemon at any moment, so many times; return how often somebody had yet to be told something."""
        met = 0
        for _ in range(self.kills):
            with self.project.daemon() as daemon:
                time.sleep(dice.uniform(0, 2))
                daemon.kill()
            met += query(self.project.root, NOT_TOLD)[0][0] > 0
        return met

    def go_on_until_all_is_told(self) -> list[int]:
        """Let a daemon live until everybody knows of each incident so far that it is over; return their ids."""
        with self.project.daemon() as daemon:
            client = self.project.daemon_client()
            newest = eventually(lambda: client.incidents(is_open=None, limit=1))[0].id
            numbers = list(range(1, newest + 1))
            deadline = time.monotonic() + PATIENCE
            while missing := self.not_told(numbers):
                assert time.monotonic() < deadline, f"nobody was told it all: {missing}"
                time.sleep(0.5)
            assert daemon.stop() == 0
        return numbers

    def not_told(self, numbers: Sequence[int]) -> Mapping[int, Sequence[str]]:
        kinds = Log(self.arrived).kinds
        return {number: kinds[number] for number in numbers if kinds[number][-1:] not in (["closed"], ["was"])}

    def check(self, numbers: Sequence[int]) -> Log:
        recorded = defaultdict[str, list[Span]](list)
        for subject, opened_ms, closed_ms in query(self.project.root, INCIDENTS):
            recorded[subject.removeprefix("job:")].append((opened_ms, closed_ms))
        assert recorded == spans(query(self.project.root, ENDED))
        log = Log(self.arrived)
        assert {len(set(bodies)) for bodies in log.bodies.values()} == {1}, "one id, and not the same words"
        assert not log.unnamed, "too much at once for this test to see"
        for number in numbers:
            assert log.kinds[number] in (["opened", "closed"], ["was"])
        return log


@pytest.fixture
def services(tmp_path: Path) -> Iterator[Services]:
    dice = random.Random(7)

    def answer(_: Arrived) -> Answer:
        time.sleep(dice.uniform(0, 0.5))  # in which it is killed: the message has come, and nobody knows it
        return Answer()

    with open_services(tmp_path) as services:
        services.answer = answer
        yield services


def test_a_daemon_killed_between_a_run_and_its_message_loses_nothing_and_shows_nothing_new_wrong(
    tmp_path: Path, services: Services, torture: bool
) -> None:
    if not torture:
        pytest.skip("takes minutes: --torture; two such kills are in tests/integration/test_told_by_scripts.py")
    root = tmp_path / "project"
    root.mkdir()
    project = Project(root)
    jobs = [f"job{number}" for number in range(10)]
    project.save("config.toml", CONFIG + "".join(CHANNEL.format(job=job, port=services.port) for job in jobs))
    for number, job in enumerate(jobs):
        settings = SETTINGS.format(period=PERIOD, job=job, failures=FAILURES)
        project.job(job, SCRIPT.format(job=job, length=20 + 2 * number), settings)
    lives = Lives(project, services.arrived, KILLS)
    met = lives.live(random.Random(5))
    log = lives.check(lives.go_on_until_all_is_told())
    assert met > lives.kills / 2, "few kills came before a message: the test proves little"
    assert max(map(len, log.bodies.values())) > 1, "no kill met a message on its way"
