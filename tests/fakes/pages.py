"""Read the files that a page of the documentation shows: the line before a block names the file."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from tests.fakes.repository import read

_FILE = re.compile(r"^`(?P<name>jobs/[^`\n]+)`[^`\n]*\n\n```\w+\n(?P<text>.*?)^```", re.MULTILINE | re.DOTALL)


def files_of(page: str) -> list[tuple[str, str]]:
    """Return names and texts, in the order of the page; one name may come more than once."""
    return [(found["name"], found["text"]) for found in _FILE.finditer(read(page))]


def file_of(page: str, name: str, number: int = 0) -> str:
    """Return the text of the file with that name; where there are several, of that one."""
    return [text for each, text in files_of(page) if PurePosixPath(each).name == name][number]
