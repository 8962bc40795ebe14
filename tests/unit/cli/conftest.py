from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project in UTC whose one job is prices; no daemon runs."""
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "prices.lua").write_text('-- /// job\n-- name = "Prices"\n-- ///\n')
    (tmp_path / "config.toml").write_text('[daemon]\ntimezone = "UTC"\n')
    (tmp_path / "data").mkdir(mode=0o700)
    return tmp_path
