"""Measure what the API takes of a daemon that is busy: 1,000 jobs, each once a second, so 1,000 runs a second.

One client asks for all jobs, for their overview and for a page of runs, without a pause between two questions.  The
peer is the same daemon's jobs with nobody asking: how late they begin.
"""

from __future__ import annotations

import time

from benchmarks.bench_server import checked, lateness, url_in
from benchmarks.command import running, write_jobs
from benchmarks.load import measure
from benchmarks.place import folder
from benchmarks.table import Effort, Row, median, read_effort, show

JOBS, EVERY = 1_000, "1s"
JOB = "return 1"
PATHS = {"all jobs": "/api/jobs", "the overview": "/api/overview", "50 runs": "/api/runs"}
LIMITS = {"all jobs": 50.0}
FIRST_S = 8  # until all are live and have had their first runs


def one_round(effort: Effort) -> dict[str, float]:
    seconds = effort.of(4, 1)
    figures: dict[str, float] = {}
    with folder() as root:
        write_jobs(root, [f"job{number:04}" for number in range(effort.of(JOBS, 20))], EVERY, JOB)
        with running(root):
            url = url_in(root / "daemon.out")
            time.sleep(effort.of(FIRST_S, 2))
            for name, path in PATHS.items():
                checked(measure(url + path, 1, 0.5))
                figures[name] = checked(measure(url + path, 1, seconds)).p99_ms
                figures[f"late, {name}"] = lateness(root, seconds * 0.9)
            time.sleep(seconds)
            figures["late, quiet"] = lateness(root, seconds * 0.9)
    return figures


def main() -> None:
    effort = read_effort(__doc__)
    rounds = [one_round(effort) for _ in range(effort.rounds)]
    figures = {name: median(each[name] for each in rounds) for name in rounds[0]}
    rows = []
    for name in PATHS:
        rows.append(Row(figure=f"p99 of {name}", ours=figures[name], unit="ms", limit=LIMITS.get(name)))
        rows.append(Row(figure=f"lateness p99 beside {name}", ours=figures[f"late, {name}"], unit="ms",
                        peer="nobody asks", theirs=figures["late, quiet"]))  # fmt: skip
    show(f"The API of a daemon with {effort.of(JOBS, 20)} runs a second", effort, rows)


if __name__ == "__main__":
    main()
