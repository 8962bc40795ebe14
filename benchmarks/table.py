"""Parse a benchmark's options, `--quick` and `--rounds N`, and print one table of figures beside their peers.

All figures are costs (time, bytes, lateness): the smaller the better.  A ratio says how many times as fast as the peer
ours is, or how many times as much it takes; `to reach` is what spyweb promises of it.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from benchmarks.place import describe_disk


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How long a benchmark measures."""

    quick: bool  # a smoke run: does it still work?
    rounds: int

    def of(self, full: int, quick: int) -> int:
        return quick if self.quick else full


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    figure: str
    ours: float
    unit: str
    peer: str = ""  # who it is measured against
    theirs: float | None = None
    faster: bool = False  # the ratio is theirs / ours, not ours / theirs
    reach: float | None = None  # of the ratio: at least when `faster`, else at most
    limit: float | None = None  # of ours itself: at most

    @property
    def ratio(self) -> float | None:
        if not self.theirs or not self.ours:
            return None
        return self.theirs / self.ours if self.faster else self.ours / self.theirs

    @property
    def is_met(self) -> bool | None:
        """Return whether the promise is kept; None where nothing is promised."""
        verdicts = [self.ours <= self.limit] if self.limit is not None else []
        if self.reach is not None and self.ratio is not None:
            verdicts.append(self.ratio >= self.reach if self.faster else self.ratio <= self.reach)
        return all(verdicts) if verdicts else None

    @property
    def promise(self) -> str:
        sign = ">=" if self.faster else "<="
        wanted = [f"{sign} {self.reach:g} x"] if self.reach is not None else []
        wanted += [f"<= {self.limit:g} {self.unit}"] if self.limit is not None else []
        return ", ".join(wanted)


def read_effort(doc: str | None) -> Effort:
    parser = argparse.ArgumentParser(description=(doc or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a smoke run of a second or two: its figures say nothing")
    parser.add_argument("--rounds", type=int, default=3, help="of each figure the median is shown (3)")
    given = parser.parse_args()
    return Effort(quick=given.quick, rounds=1 if given.quick else max(1, given.rounds))


def median(values: Iterable[float]) -> float:
    return statistics.median(values)


def percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def show(title: str, effort: Effort, rows: Sequence[Row]) -> None:
    runs = "quick run: its figures say nothing" if effort.quick else f"median of {effort.rounds}"
    print(f"\n{title} ({runs}; {describe_disk()})")
    lines = [("figure", "ours", "peer", "", "ratio", "to reach"), *map(_cells, rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    for line in lines:
        aligned = [cell.rjust(width) if column in (1, 2, 4) else cell.ljust(width)
                   for column, (cell, width) in enumerate(zip(line, widths, strict=True))]  # fmt: skip
        print("  " + "  ".join(aligned).rstrip())
    sys.stdout.flush()


def _cells(row: Row) -> tuple[str, ...]:
    theirs = "" if row.theirs is None else _amount(row.theirs, row.unit)
    ratio = "" if row.ratio is None else f"{row.ratio:.2f} x {'as fast' if row.faster else 'as much'}"
    verdict = {None: "", True: "  met", False: "  SHORT"}[row.is_met]
    return row.figure, _amount(row.ours, row.unit), theirs, row.peer, ratio, row.promise + verdict


def _amount(value: float, unit: str) -> str:
    digits = 0 if value >= 1000 else 1 if value >= 10 else 2
    return f"{value:,.{digits}f} {unit}"
