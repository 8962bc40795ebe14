"""The decorators that turn functions into pages of the dashboard, and the tables that they fill.

A page is a function that gathers what a template shows; an action is what a form of one asks for, and ends at a page.
What all of them have in common is done by web/pages/site.py.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import quote, urlsplit
from zoneinfo import ZoneInfo

import msgspec
from aiohttp import web
from msgspec import Struct, field

from spyweb.dashboard.frame import Link
from spyweb.dashboard.words import Moments
from spyweb.model import JobId
from spyweb.service.changes import Shows
from spyweb.service.daemon import DaemonService
from spyweb.settings.nearest import nearest_name
from spyweb.web.access.principal import Principal
from spyweb.web.access.rights import Right
from spyweb.web.api.query import query_of
from spyweb.web.pages.outlook import Outlook, look

if TYPE_CHECKING:
    from spyweb.dashboard.render import Renderer  # with Jinja2: a daemon of which nobody asks a page does without it

OUTLOOK = web.RequestKey("outlook", Outlook)
OF_JOB = "{job}"
THEME, THEMES = "spyweb_theme", frozenset({"light", "dark"})  # a cookie, and what it may say
LONGEST_NAME = 80  # characters that are shown of an unknown name

Q = TypeVar("Q", bound=msgspec.Struct)


class PageMissing(web.HTTPNotFound):
    """There is no such page; perhaps one of those that are close to it was meant."""

    def __init__(self, title: str, close: Sequence[Link] = ()) -> None:
        super().__init__(text=title)
        self.title = title
        self.close = close


class Asked(Struct, frozen=True, kw_only=True):
    """A request for a page, and what pages are made with."""

    request: web.Request
    base: str  # the dashboard's own address
    principal: Principal
    service: DaemonService
    renderer: Renderer
    form: Mapping[str, str] = field(default_factory=dict)  # of an action
    mark: str = ""  # of the moment before anything was read
    since: str = ""  # the mark of the page that is there, where parts are wanted
    parts: Sequence[str] = ()  # that are wanted; none: the whole page

    @property
    def moments(self) -> Moments:
        return moments_of(self.service)

    def to(self, *parts: object) -> str:
        """Return the address of a page."""
        return self.base + "/".join(quote(str(part), safe="") for part in parts)

    async def outlook(self) -> Outlook:
        """Return how all stands, once for each request."""
        found = self.request.get(OUTLOOK)
        if found is None:
            found = self.request[OUTLOOK] = await look(self.service, self.principal)
        return found

    def query(self, kind: type[Q]) -> Q:
        return query_of(self.request, kind)

    def back(self) -> str:
        """Return the page that a form was on; never one of another site."""
        back = self.form.get("back", "")
        is_plain = not back.startswith("//") and "\\" not in back and back.isprintable() and not urlsplit(back).netloc
        return back if back.startswith(self.base) and is_plain else self.base

    def name_of(self, job: str) -> str:
        """Return the name of a job; of one that is gone, its id."""
        live = self.service.live.find(JobId(job))
        return live.spec.name if live else job

    def job(self) -> JobId:
        """Return the job in the path.

        Raises PageMissing, with what is close to it; a page that is asked for by the name of one job leads to its id.
        """
        asked = self.request.match_info["job"]
        names = {job: name for job, name in self.service.names().items() if self.principal.may_see(job)}
        if asked in names:
            return JobId(asked)
        named = [job for job, name in names.items() if name.casefold() == asked.casefold()]
        if len(named) == 1 and self.request.method in ("GET", "HEAD"):
            raise web.HTTPFound(self.to("jobs", named[0]))
        close = nearest_name(asked, names)
        links = [Link(close, self.to("jobs", close))] if close else []
        raise PageMissing(f"No job is called {asked[:LONGEST_NAME]}", links)


def moments_of(service: DaemonService) -> Moments:
    """Return the moments as seen from now, in the daemon's zone."""
    return Moments(service.clock.now_ms(), ZoneInfo(service.timezone))


class Shown(Struct, frozen=True, kw_only=True):
    """The content of a page."""

    title: str  # of the tab
    values: Mapping[str, object]  # of the template
    is_live: bool = True  # where the page has parts: False for a state of it that does not change by itself
    html: Mapping[str, str] = field(default_factory=dict)  # parts that are made already
    template: str = ""  # another than the page's own
    status: int = 200


class Question(Struct, frozen=True, kw_only=True):
    """A question that is asked before something is done that can't be undone."""

    title: str  # a question
    words: str  # who is hit
    button: str  # what happens


class PagePart(Struct, frozen=True):
    """An element of a page that is fetched anew when one of its subjects changes (service/changes.py).

    `{job}` in a subject is that of the path; `job:*` is every job, whose id takes the place of `*` in the part's id.
    """

    template: str
    subjects: tuple[str, ...]


ALWAYS = {
    "icon": PagePart("icon.html", ("standing",)),
    "count-jobs": PagePart("count.html", ("standing",)),
    "count-incidents": PagePart("count.html", ("standing",)),
    "count-health": PagePart("count.html", ("standing",)),
}

Parts = Mapping[str, PagePart] | Callable[[Asked], Mapping[str, PagePart]]  # a function: of the query
AskFirst = Callable[[Asked], Awaitable[Question]]  # where the question says what is known only then
Show = Callable[[Asked], Awaitable[Shown]]
Do = Callable[[Asked], Awaitable[web.Response]]  # `lead_to` the page that shows what was done
S = TypeVar("S", bound=Show)
D = TypeVar("D", bound=Do)


class DashboardPage(Struct, frozen=True, kw_only=True):
    """One page of the dashboard."""

    path: str  # below the dashboard's own address
    template: str
    show: Show
    place: str  # the entry of the bar that is current
    right: Right | None
    of_job: bool  # it shows no more than whoever asks may see
    parts: Parts | None = None
    anew: tuple[str, ...] = ()  # subjects with which all of it changes

    @property
    def is_live(self) -> bool:
        return bool(self.parts is not None or self.anew)

    def parts_of(self, asked: Asked) -> Mapping[str, PagePart]:
        own = self.parts(asked) if callable(self.parts) else self.parts or {}
        return {**ALWAYS, **own}

    def shows(self, asked: Asked) -> Shows:
        words = asked.request.match_info
        parts = self.parts_of(asked).items()
        own = [(name, tuple(each.format(**words) for each in part.subjects)) for name, part in parts]
        return Shows((("", tuple(each.format(**words) for each in self.anew)), *own), asked.principal.jobs)


class Action(Struct, frozen=True, kw_only=True):
    """An address to which forms of the dashboard are sent."""

    path: str
    do: Do
    right: Right | None
    of_job: bool
    question: Question | AskFirst | None


PAGES: list[DashboardPage] = []
ACTIONS: list[Action] = []


def page(  # noqa: PLR0913
    path: str,
    template: str,
    *,
    place: str = "",
    right: Right | None = Right.READ,
    of_job: bool | None = None,
    parts: Parts | None = None,
    anew: tuple[str, ...] = (),
) -> Callable[[S], S]:
    """Put a function into the table of pages; where the path names a job, it is a page of a job.

    One with `parts`, or `anew`, is kept up to date.
    """

    def add(show: S) -> S:
        is_of_job = OF_JOB in path if of_job is None else of_job
        PAGES.append(
            DashboardPage(
                path=path,
                template=template,
                show=show,
                place=place,
                right=right,
                of_job=is_of_job,
                parts=parts,
                anew=anew,
            )
        )
        return show

    return add


def action(
    path: str, *, right: Right | None, of_job: bool | None = None, question: Question | AskFirst | None = None
) -> Callable[[D], D]:
    """Put a function into the table of actions; a `question` is asked first."""

    def add(do: D) -> D:
        is_of_job = OF_JOB in path if of_job is None else of_job
        ACTIONS.append(Action(path=path, do=do, right=right, of_job=is_of_job, question=question))
        return do

    return add


def lead_to(address: str) -> web.Response:
    """Have the browser show another page: what a form has asked for is done."""
    return web.Response(status=web.HTTPSeeOther.status_code, headers={"Location": address})


def pages_of(module: ModuleType) -> list[DashboardPage]:
    return [each for each in PAGES if each.show.__module__ == module.__name__]


def actions_of(module: ModuleType) -> list[Action]:
    return [each for each in ACTIONS if each.do.__module__ == module.__name__]
