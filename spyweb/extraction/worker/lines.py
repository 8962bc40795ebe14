"""Find the lines of a text that a regular expression matches: one that takes for ever must not run in the daemon."""

from __future__ import annotations

import re

from spyweb.extraction.worker.document import ExtractionProblem


def find_lines(pattern: str, text: bytes) -> list[int]:
    """Return the numbers of the lines, from 0, in which it is found.  Raises ExtractionProblem."""
    try:
        found = re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise ExtractionProblem(f"this is not a regular expression: {error}") from None
    lines = text.decode("utf-8", "surrogateescape").split("\n")
    return [number for number, line in enumerate(lines) if found.search(line.removesuffix("\r"))]
