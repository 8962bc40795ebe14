from __future__ import annotations

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from spyweb.errors import StoreCorrupt, StoreError
from spyweb.logs.refusals import tell_refusal


@pytest.mark.parametrize(
    ("error", "level", "reason"),
    [
        (StoreError("no room left"), "error", "no room left"),
        (StoreCorrupt(Path("s.db"), "torn"), "debug", str(StoreCorrupt(Path("s.db"), "torn"))),
        (MemoryError(), "error", "MemoryError"),
    ],
)
def test_a_refusal_is_told_with_its_reason_and_damage_by_the_store_alone(
    error: Exception, level: str, reason: str
) -> None:
    with capture_logs() as told:
        tell_refusal("put off", error, by_s=5)
    assert told == [{"event": "put off", "reason": reason, "by_s": 5, "log_level": level}]
