"""Records as rows of CSV, one after the other, so that any number is sent in little memory.  Pure.

A cell is what was found, unchanged.  Of a table that a person opens in a spreadsheet, a text that the program would
take for a formula gets an apostrophe before it; numbers don't.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence

import msgspec

from spyweb.views.records import RecordView

FIRST, LAST = ("date_time", "job"), ("keywords", "page_url")
OTHERS = "other_fields"  # what a record has beside the columns, as JSON
_FORMULA = re.compile(r"[=+\-@\t\r]")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:[.,][0-9]+)*|[.,][0-9]+)(?:[eE][+-]?[0-9]+)?%?")


def column_names(declared: Iterable[str], first: Sequence[RecordView]) -> list[str]:
    """Return the fields that have a column: those that the job declares, and those of its newest records."""
    return list(dict.fromkeys([*declared, *(name for view in first for name in view.fields)]))


def csv_header(names: Sequence[str], *, for_spreadsheet: bool = False) -> str:
    return csv_line((*FIRST, *names, *LAST, OTHERS), for_spreadsheet=for_spreadsheet)


def csv_row(names: Sequence[str], view: RecordView, *, for_spreadsheet: bool = False) -> str:
    others = {name: value for name, value in view.fields.items() if name not in names}
    cells = [view.date_time, view.job_id, *(view.fields.get(name, "") for name in names)]
    cells += [" ".join(view.match_key), view.page_url, msgspec.json.encode(others).decode() if others else ""]
    return csv_line(cells, for_spreadsheet=for_spreadsheet)


def csv_line(cells: Iterable[str], *, for_spreadsheet: bool = False) -> str:
    """Return one line by RFC 4180."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\r\n").writerow([_harmless(cell) for cell in cells] if for_spreadsheet else cells)
    return text.getvalue()


def _harmless(cell: str) -> str:
    return f"'{cell}" if _FORMULA.match(cell) and not _NUMBER.fullmatch(cell) else cell
