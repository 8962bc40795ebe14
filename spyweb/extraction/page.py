"""The page that an extractor is given, and the items that it returns."""

from __future__ import annotations

from dataclasses import dataclass

from spyweb.model import Field, JobId


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A page's body as it came, and which items and fields are wanted of it."""

    job: JobId  # which jobs take turns by
    body: bytes
    content_type: str | None  # the header, as it came
    url: str  # where it came from in the end: relative links are resolved against it
    selector: str  # finds the items
    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True)
class Extracted:
    items: tuple[dict[str, str], ...]  # in the order of the page; every field is in each, "" where nothing matched
