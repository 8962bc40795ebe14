"""The runbook has an entry for each problem that is shown, and no other."""

from __future__ import annotations

import re

from spyweb.subjects.health.remedies import REMEDIES
from tests.fakes.repository import read


def test_the_runbook_has_an_entry_for_each_code() -> None:
    entries = re.findall(r"^### `(.+)`$", read("docs/operations.md"), re.MULTILINE)
    assert entries == sorted(REMEDIES)
