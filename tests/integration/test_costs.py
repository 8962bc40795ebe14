"""Nothing that a script or a file may hold costs more than its length asks for: every op and every door, at n and 4 n.

A ratio needs no fast machine, and finds a square at a size where it takes a tenth of a second.  A new op is measured by
being in the catalogue.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.fakes.costs import is_dear

# What may grow faster, with the reason.
EXEMPT: Mapping[str, str] = {}


@pytest.mark.deep
@pytest.mark.slow
@pytest.mark.timeout(240)
def test_every_op_and_every_door_costs_no_more_than_the_length_of_what_it_is_given(tmp_path: Path) -> None:
    child = subprocess.run(
        [sys.executable, "-m", "tests.fakes.costs", str(tmp_path)], capture_output=True, text=True, check=False
    )
    lines = [json.loads(line) for line in child.stdout.splitlines() if line.startswith("{")]
    begun = [line["begin"] for line in lines if "begin" in line]
    measured = {line["case"]: line for line in lines if "case" in line}
    assert child.returncode == 0, f"{begun[-1] if begun else 'the start'} was too much: {child.stderr[-2000:]}"
    assert len(measured) == len(set(begun)) > 10_000
    dear = [line for line in measured.values() if is_dear(line["small"], line["large"])]
    assert [line for line in dear if line["case"] not in EXEMPT] == []
