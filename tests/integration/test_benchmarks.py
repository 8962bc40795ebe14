"""Every benchmark still runs, and prints its table.  What the figures are is nobody's business here."""

from __future__ import annotations

import subprocess
import sys

import pytest

from benchmarks.__main__ import find_benchmarks
from benchmarks.table import Row
from tests.fakes.repository import ROOT

pytestmark = pytest.mark.timeout(90)


@pytest.mark.deep
@pytest.mark.slow
@pytest.mark.parametrize("name", find_benchmarks([]))
def test_a_quick_run_of_each_benchmark_prints_its_figures(name: str) -> None:
    command = [sys.executable, "-m", f"benchmarks.{name}", "--quick"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    assert any(character.isdigit() for character in done.stdout)


def test_a_ratio_says_how_many_times_as_fast_or_as_much() -> None:
    assert Row(figure="a", ours=2, unit="us", theirs=5, faster=True).ratio == 2.5
    assert Row(figure="a", ours=5, unit="us", theirs=2).ratio == 2.5
    assert Row(figure="a", ours=5, unit="us").ratio is None


def test_a_figure_falls_short_of_its_promise_by_ratio_or_by_itself() -> None:
    assert Row(figure="a", ours=2, unit="us", theirs=5, faster=True, reach=2.5).is_met is True
    assert Row(figure="a", ours=2, unit="us", theirs=4, faster=True, reach=2.5).is_met is False
    assert Row(figure="a", ours=5, unit="us", theirs=2, reach=2.5).is_met is True
    assert Row(figure="a", ours=6, unit="us", theirs=2, reach=2.5).is_met is False
    assert Row(figure="a", ours=6, unit="us", limit=5).is_met is False
    assert Row(figure="a", ours=6, unit="us").is_met is None
