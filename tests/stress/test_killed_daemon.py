"""The daemon is killed in the middle of its commits, again and again.

Nothing that a script was told is stored is missing, no counter is ahead by more than the op in flight at each kill, and
no due time is without a record or has two first attempts.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.fakes.database_reader import DatabaseReader
from tests.fakes.http_server import Answer, Arrived, serving
from tests.fakes.project import Project

pytestmark = [pytest.mark.deep, pytest.mark.slow, pytest.mark.timeout(1200)]

KILLS = 100
PERIOD_MS = 100
JOBS = [f"count{number}" for number in range(8)]
SETTINGS = f'every = "{PERIOD_MS}ms"'
SCRIPT = """
function run(ctx)
    local n = tonumber(store_get("n") or "0") + 1
    store_set("n", tostring(n))  -- what follows happens only once this is acknowledged
    local due = math.floor(ctx.scheduled_at * 1000 + 0.5)
    http_get("{origin}/?job=" .. ctx.job .. "&n=" .. n .. "&due=" .. due .. "&attempt=" .. ctx.attempt)
    sleep(40)
end
"""


class Witness:
    """A server beside the daemon: what scripts tell it, it remembers."""

    def __init__(self) -> None:
        self.origin = ""
        self.counted: Counter[str] = Counter()  # job → the greatest number told
        self.told: Counter[tuple[str, str, str]] = Counter()  # job, due time, attempt
        self._lock = threading.Lock()

    def take(self, arrived: Arrived) -> Answer:
        query = parse_qs(urlsplit(arrived.path).query)
        job, number, due, attempt = (query[name][0] for name in ("job", "n", "due", "attempt"))
        with self._lock:
            self.counted[job] = max(self.counted[job], int(number))
            self.told[job, due, attempt] += 1
        return Answer(body=b"")


@pytest.fixture
def witness() -> Iterator[Witness]:
    witness = Witness()
    with serving(witness.take) as witness.origin:
        yield witness


def test_a_daemon_killed_in_mid_commit_forgets_nothing_it_acknowledged(tmp_path: Path, witness: Witness) -> None:
    project, reader = Project(tmp_path), DatabaseReader(tmp_path)
    dice = random.Random(5)
    for name in JOBS:
        project.job(name, SCRIPT.replace("{origin}", witness.origin), SETTINGS)
    for kill in range(1, KILLS + 1):
        with project.daemon() as daemon:
            time.sleep(dice.uniform(0.2, 0.8))
            daemon.kill()
        for name in JOBS:
            stored = int(reader.value(f"job:{name}", "n") or b"0")
            assert witness.counted[name] <= stored, f"{name}: acknowledged, and missing after kill {kill}"
            assert stored <= witness.counted[name] + kill, f"{name}: ahead by more than the op in flight"
    with project.daemon() as daemon:
        project.ended(JOBS[0])
        assert daemon.stop() == 0
    for name in JOBS:
        assert reader.gaps(name, PERIOD_MS) == [], name
        assert not [row for row in reader.rows(name) if row.state != "ended"], "still open after a planned stop"
    assert not [what for what, times in witness.told.items() if times > 1], "an attempt was begun twice"
    assert sum(reader.outcomes(name)["lost"] for name in JOBS) > 0, "no kill met a run: the test proves nothing"
