"""The tree does not grow: its figures are numbers in one file, and raising one is a commit of its own that says why."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from tests.fakes.repository import ROOT, read, tracked_files

LIMITS = tomllib.loads(read("tests/docs/figures.toml"))


def lines_of(path: Path) -> int:
    return len(path.read_text().splitlines())


@pytest.mark.parametrize("folder", LIMITS)
def test_no_figure_has_risen(folder: str) -> None:
    lines = [lines_of(path) for path in tracked_files() if path.is_relative_to(ROOT / folder) and path.suffix == ".py"]
    found = {"lines": sum(lines), "modules": len(lines), "longest_module": max(lines)}
    risen = {name: f"{found[name]} instead of {limit}" for name, limit in LIMITS[folder].items() if found[name] > limit}
    assert not risen, (
        f"{folder}/ has grown: {risen}. What could go instead? CONTRIBUTING.md says how a figure is raised"
    )
