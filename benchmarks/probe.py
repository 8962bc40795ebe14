"""Request a URL again and again, from a separate process: python -m benchmarks.probe URL SECONDS

Prints the p99 of what an answer took, in milliseconds.
"""

from __future__ import annotations

import sys
import time
import urllib.request

from benchmarks.table import percentile

PAUSE = 0.02  # seconds


def ask(url: str) -> float:
    began = time.perf_counter()
    with urllib.request.urlopen(url, timeout=10) as answer:
        answer.read()
    return (time.perf_counter() - began) * 1e3


def main(url: str, seconds: float) -> None:
    waits = []
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        waits.append(ask(url))
        time.sleep(PAUSE)
    print(percentile(waits, 0.99))


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
