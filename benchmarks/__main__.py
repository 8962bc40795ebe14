"""Run every benchmark, each in a separate process:  python -m benchmarks [--quick] [NAME ...]

NAME is part of a file's name: `python -m benchmarks ops runs`.  Each prints one table.  Ends with 1 when one fails; a
figure that misses its promise is marked SHORT, without a failure, since machines differ.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent


def find_benchmarks(wanted: list[str]) -> list[str]:
    names = sorted(file.stem for file in HERE.glob("bench_*.py"))
    return [name for name in names if not wanted or any(part in name for part in wanted)]


def run(name: str, flags: list[str]) -> bool:
    began = time.perf_counter()
    done = subprocess.run([sys.executable, "-m", f"benchmarks.{name}", *flags], cwd=HERE.parent, check=False)
    verdict = "" if done.returncode == 0 else f", FAILED with exit code {done.returncode}"
    print(f"\n{name}: {time.perf_counter() - began:.0f} s{verdict}", flush=True)
    return done.returncode == 0


def main() -> int:
    parser = argparse.ArgumentParser(description="every benchmark, one after another")
    parser.add_argument("--quick", action="store_true", help="smoke runs: their figures say nothing")
    parser.add_argument("name", nargs="*", help="part of a benchmark's name")
    given = parser.parse_args()
    flags = ["--quick"] if given.quick else []
    verdicts = [run(name, flags) for name in find_benchmarks(given.name)]
    return 0 if verdicts and all(verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
