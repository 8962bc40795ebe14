"""The parts of a page that are kept up to date: its own, and those that every page has."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from urllib.parse import quote

from msgspec import Struct

from spyweb.dashboard.frame import PageFrame
from spyweb.views.events import EventType
from spyweb.web.pages.outlook import look
from spyweb.web.pages.page import Asked, PageMissing, moments_of

EVERYWHERE = {
    "icon": "icon.html",
    "count-jobs": "count.html",
    "count-incidents": "count.html",
    "count-health": "count.html",
}
ALWAYS = frozenset({EventType.RUN, EventType.JOB, EventType.HEALTH, EventType.INCIDENT})

Values = Mapping[str, object]
Gather = Callable[[Asked], Awaitable[Values]]


class PagePart(Struct, frozen=True, kw_only=True):
    """A part of a page: what renders it, and the subjects that it depends on (service/page_hub.py)."""

    template: str
    subjects: tuple[str, ...]  # one that ends in `*` stands for all that begin so

    def depends_on(self, subject: str) -> bool:
        return any(subject == each or (each[-1] == "*" and subject.startswith(each[:-1])) for each in self.subjects)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartsView:
    """The view of a page whose own parts are rendered together, of the same values."""

    name: str
    asked: Asked
    argument: str = ""  # what the page is about
    own: Mapping[str, PagePart]  # by the ids of their elements
    needs: frozenset[EventType] = ALWAYS
    gather: Gather
    anew: frozenset[str] = frozenset()  # the subjects whose change has the whole page fetched anew

    @property
    def key(self) -> Hashable:
        """Return what the parts are made of; a part may name its viewer, so nobody is sent another's."""
        return self.name, self.argument, self.asked.base, self.asked.principal

    @property
    def log(self) -> None:
        return None

    @property
    def live(self) -> str:
        """Return what leads the page to its stream; to be called before anything is read."""
        mark = self.asked.service.pages.mark(self)
        argument = f":{quote(self.argument, safe='')}" if self.argument else ""
        return f"view={self.name}{argument}&since={mark}"

    def parts(self, subject: str) -> Sequence[str] | None:
        """Return the ids of the parts that depend on a subject; None: all of the page does."""
        if subject in self.anew:
            return None
        found = [part for part, how in self.own.items() if how.depends_on(subject)]
        return [*found, *EVERYWHERE] if subject.startswith("job:") or subject in ("health", "incident") else found

    async def render(self, parts: Sequence[str]) -> Mapping[str, str]:
        """Return each part as it is now; none of the page's own where it is about what is gone or may not be seen."""
        asked = self.asked
        outlook = await look(asked.service, asked.principal)
        frame = PageFrame(
            base=asked.base,
            moments=moments_of(asked.service),
            state=outlook.state,
            counts=outlook.counts,
            may=asked.principal.may_do,
        )
        values: Values = {}
        if any(part in self.own for part in parts):
            try:
                values = await self.gather(asked)
            except PageMissing:
                parts = [part for part in parts if part not in self.own]
        render = partial(asked.renderer.part, frame=frame)
        return {
            part: render(self._template(part), values={**values, "name": part.removeprefix("count-")}) for part in parts
        }

    def _template(self, part: str) -> str:
        return self.own[part].template if part in self.own else EVERYWHERE[part]
