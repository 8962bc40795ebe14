"""A list of jobs as somebody has asked for it: filtered, sorted, a page at a time.  Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Annotated

from msgspec import Meta, Struct

from spyweb.model import JobId
from spyweb.views.jobs import JobState, JobView

MOST_JOBS = 10_000  # of a page


class JobSort(StrEnum):
    """The order of a list of jobs; with `-`, the other way round.

    They are: `id`, `name`, `state`, `next` (due first, without a due time last), `last` (the latest to end first),
    `duration` (of the last run, the longest first); those that never ran are last.
    """

    ID = "id"
    NAME = "name"
    STATE = "state"
    NEXT = "next"
    LAST = "last"
    DURATION = "duration"
    ID_REVERSED = "-id"
    NAME_REVERSED = "-name"
    STATE_REVERSED = "-state"
    NEXT_REVERSED = "-next"
    LAST_REVERSED = "-last"
    DURATION_REVERSED = "-duration"


class JobsQuery(Struct, frozen=True, kw_only=True):
    """Which jobs, in which order."""

    state: JobState | None = None
    tag: str = ""
    q: Annotated[str, Meta(description="a text in the id, the name, the description or a tag")] = ""
    sort: JobSort = JobSort.ID
    limit: Annotated[int, Meta(ge=0, le=MOST_JOBS, description="0: all")] = 0
    after: Annotated[str, Meta(description="the id of the last job of the page before")] = ""


Key = tuple[object, ...]
_KEYS: Mapping[str, Callable[[JobView], Key]] = {
    "id": lambda view: (view.id,),
    "name": lambda view: (view.name.casefold(),),
    "state": lambda view: (view.state.value,),
    "next": lambda view: (view.next_due_ms is None, view.next_due_ms or 0),
    "last": lambda view: (view.last is None, -((view.last and view.last.ended_ms) or 0)),
    "duration": lambda view: (view.last is None, -((view.last and view.last.duration_ms) or 0)),
}


def pick_jobs(views: Iterable[JobView], wanted: JobsQuery) -> tuple[Sequence[JobView], JobId | None]:
    """Return a page of those that match, and what `after` takes for the next one.

    Where the last job of the page before is gone, it begins anew.
    """
    chosen = [view for view in views if _matches(view, wanted)]
    chosen.sort(key=lambda view: view.id)
    if wanted.sort is not JobSort.ID:
        chosen.sort(key=_KEYS[wanted.sort.removeprefix("-")])
        if wanted.sort.startswith("-"):
            chosen.reverse()
    start = next((place + 1 for place, view in enumerate(chosen) if view.id == wanted.after), 0) if wanted.after else 0
    page = chosen[start : start + wanted.limit] if wanted.limit else chosen[start:]
    return page, page[-1].id if page and start + len(page) < len(chosen) else None


def _matches(view: JobView, wanted: JobsQuery) -> bool:
    if wanted.state is not None and view.state is not wanted.state:
        return False
    if wanted.tag and wanted.tag not in view.tags:
        return False
    text = wanted.q.casefold()
    return not text or any(text in each.casefold() for each in (view.id, view.name, view.description, *view.tags))
