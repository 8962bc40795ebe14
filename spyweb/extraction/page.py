"""What is asked of an extractor, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from spyweb.model import Field, JobId


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A body as it came, and what is wanted of it."""

    job: JobId  # which jobs take turns by
    body: bytes
    content_type: str | None  # the header, as it came
    url: str  # where it came from in the end: relative links are resolved against it
    selector: str  # finds the items
    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True)
class Extracted:
    items: tuple[dict[str, str], ...]  # in the order of the page; every field is in each, "" where nothing matched


class Extractor(Protocol):
    async def extract(self, page: Page) -> Extracted:
        """Raises ExtractionError: a selector is wrong, or this page took too long, too much memory, or a process."""
