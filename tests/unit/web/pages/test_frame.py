"""What stands around the own part of every page."""

from __future__ import annotations

from spyweb.web.pages.frame import nav_entries


def test_every_entry_of_the_bar_has_its_own_name_and_address() -> None:
    entries = nav_entries()
    assert len({entry.name for entry in entries}) == len({entry.path for entry in entries}) == len(entries)
    assert entries[0].path == ""
