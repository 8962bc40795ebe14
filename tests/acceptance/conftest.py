"""A project for the real command."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fakes.project import Project


@pytest.fixture
def project(tmp_path: Path) -> Project:
    (tmp_path / "jobs").mkdir()
    return Project(tmp_path)
