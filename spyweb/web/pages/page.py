"""The decorators that turn functions into pages of the dashboard, and the tables that they fill.

A page is a function that gathers the values of a template; an action handles a form, and redirects to a page.
web/pages/site.py does what all of them have in common.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

import msgspec
from aiohttp import web
from msgspec import Struct, field
from msgspec.structs import asdict, replace

from spyweb.events.changes import Shows
from spyweb.model import JobId
from spyweb.settings.reading import Names
from spyweb.views.source import SourceView
from spyweb.web.access.principal import Principal, Right, typed_name
from spyweb.web.access.recognise import AtOwner
from spyweb.web.api.query import query_of
from spyweb.web.api.services import Outlook, Services
from spyweb.web.pages.frame import Chip, Link, to, with_query, with_started
from spyweb.web.pages.words import Moments

if TYPE_CHECKING:
    from spyweb.web.pages.lua_source import SourceLine  # with Pygments
    from spyweb.web.pages.render import Renderer  # with Jinja2: a daemon of which nobody asks a page does without it

OF_JOB = "{job}"
LONGEST_NAME = 80  # characters that are shown of an unknown name

Q = TypeVar("Q", bound=msgspec.Struct)


class PageMissing(web.HTTPNotFound):
    """The page does not exist; `close` are similar ones."""

    def __init__(self, title: str, close: Sequence[Link] = ()) -> None:
        super().__init__(text=title)
        self.title, self.close = title, close


OUTLOOK = web.RequestKey("outlook", Outlook)


class Asked(Struct, frozen=True, kw_only=True):
    """A request for a page, with the services and the renderer."""

    request: web.Request
    principal: Principal
    services: Services
    renderer: Renderer
    form: Mapping[str, str] = field(default_factory=dict)  # of an action
    mark: str = ""  # of the moment before anything was read
    since: str = ""  # the mark of the open page, where parts are wanted
    parts: Sequence[str] = ()  # that are wanted; none: the whole page

    @property
    def moments(self) -> Moments:
        """The moments as seen from now, in the daemon's zone."""
        return Moments(self.services.clock.now_ms(), ZoneInfo(self.services.timezone))

    to = staticmethod(to)

    def address(self, query: Struct, **changes: object) -> str:
        """Return the address of this page with its parameters, some of them changed; lists begin with the newest."""
        usual = asdict(type(query)())
        given = {**asdict(query), "before": 0, **changes}
        return with_query(self.request.path, {name: value for name, value in given.items() if value != usual.get(name)})

    def chips(
        self, query: Struct, name: str, choices: Iterable[tuple[str, str]], counts: Mapping[str, int] | None = None
    ) -> list[Chip]:
        """Return a link for each value of a parameter, by its words."""
        chosen = getattr(query, name)
        return [
            Chip(
                words=words,
                href=self.address(query, **{name: value}),
                value=value,
                is_current=value == chosen,
                count=None if counts is None else counts.get(value, 0),
            )
            for value, words in choices
        ]

    def places(self, query: Struct, before: object) -> dict[str, object]:
        """Return the links around a list: to its next page, if there is one, and to its first."""
        older = self.address(query, before=before) if before else ""
        return {"older": older, "newest": self.address(query), "is_older": bool(getattr(query, "before", 0))}

    async def outlook(self) -> Outlook:
        """Return the state of all jobs, computed once for each request."""
        found = self.request.get(OUTLOOK)
        if found is None:
            found = self.request[OUTLOOK] = await self.services.outlook(self.principal)
        return found

    def query(self, kind: type[Q]) -> Q:
        return query_of(self.request, kind)

    def back(self, started: int | None = None) -> str:
        """Return the address of the form's page, which shows a started run; never one of another site."""
        back = self.form.get("back", "")
        is_plain = not back.startswith("//") and "\\" not in back and back.isprintable() and not urlsplit(back).netloc
        return with_started(back if back.startswith("/") and is_plain else "/", started)

    def who(self, typed: str = "") -> str:
        """Return the name of the key; where there is no key at all, the name that was typed."""
        if self.principal.source != "loopback":
            return self.principal.name
        return typed_name(typed) or "somebody at this machine"

    def name_of(self, job: str) -> str:
        """Return the name of a job; its id where the job was removed."""
        spec = self.services.catalogue.spec(job)
        return spec.name if spec else job

    def job_of_list(self, job: str) -> JobId | None:
        """Return the job of a list, None for all jobs.  Raises PageMissing where the client may not see it."""
        if job and not self.principal.may_see(job):
            raise PageMissing("There is no such job")
        return JobId(job) if job else None

    def job(self) -> JobId:
        """Return the job in the path.

        Raises PageMissing, with the nearest name; an address with the name of a job redirects to the one with its id.
        """
        asked = self.request.match_info["job"]
        names = {job: name for job, name in self.services.catalogue.names().items() if self.principal.may_see(job)}
        if asked in names:
            return JobId(asked)
        named = [job for job, name in names.items() if name.casefold() == asked.casefold()]
        if len(named) == 1 and self.request.method in ("GET", "HEAD"):
            raise web.HTTPFound(self.to("jobs", named[0]))
        close = Names(names).nearest(asked)
        links = [Link(close, self.to("jobs", close))] if close else []
        raise PageMissing(f"No job is called {asked[:LONGEST_NAME]}", links)


class Shown(Struct, frozen=True, kw_only=True):
    """The content of a page."""

    title: str  # of the tab
    values: Mapping[str, object]  # of the template
    is_live: bool = True  # False: a page with parts shows a state that does not change
    html: Mapping[str, str] = field(default_factory=dict)  # parts that are rendered already
    template: str = ""  # in place of the page's own
    status: int = 200


class Question(Struct, frozen=True, kw_only=True):
    """The question before an action that can't be undone."""

    title: str  # a question
    words: str  # the consequences
    button: str  # a verb


class PagePart(Struct, frozen=True):
    """An element of a page that is fetched anew when one of its subjects changes (events/changes.py).

    `{job}` in a subject is that of the path; `job:*` is every job, whose id takes the place of `*` in the part's id.
    """

    template: str
    subjects: tuple[str, ...]


ALWAYS = {
    "icon": PagePart("icon.html", ("standing",)),
    **dict.fromkeys(("count-jobs", "count-incidents", "count-health"), PagePart("count.html", ("standing",))),
}

Parts = Mapping[str, PagePart] | Callable[[Asked], Mapping[str, PagePart]]  # a function: of the query
AskFirst = Callable[[Asked], Awaitable[Question | None]]  # none: nothing is asked; it may say what is known only then
Show = Callable[[Asked], Awaitable[Shown]]
Do = Callable[[Asked], Awaitable[web.Response]]  # `lead_to` the page that shows what was done
S = TypeVar("S", bound=Show)
D = TypeVar("D", bound=Do)


async def _undecorated(_asked: Asked) -> Any:
    raise NotImplementedError


class DashboardPage(Struct, frozen=True):
    """One page of the dashboard; decorates its function.  With `parts`, or `anew`, the page is live."""

    path: str  # without the slash that it begins with
    template: str
    show: Show = _undecorated
    place: str = ""  # the current entry of the navigation
    right: Right | None = Right.READ
    of_job: bool = False  # it shows only the jobs that the viewer may see
    parts: Parts | None = None
    anew: tuple[str, ...] = ()  # subjects with which all of it changes
    at_owner: AtOwner | None = None

    def __call__(self, show: S) -> S:
        """Put a function into the table of pages; where the path names a job, it is a page of a job."""
        PAGES.append(replace(self, show=show, of_job=self.of_job or OF_JOB in self.path))
        return show

    @property
    def is_live(self) -> bool:
        return bool(self.parts is not None or self.anew)

    def parts_of(self, asked: Asked) -> Mapping[str, PagePart]:
        own = self.parts(asked) if callable(self.parts) else self.parts or {}
        return {**ALWAYS, **own}

    def shows(self, asked: Asked) -> Shows:
        """Return the parts with their subjects, which have the names of the path; a name may have braces."""
        parts = [("", self.anew), *((name, part.subjects) for name, part in self.parts_of(asked).items())]
        for name, value in asked.request.match_info.items():
            parts = [(part, tuple(each.replace(f"{{{name}}}", value) for each in of)) for part, of in parts]
        return Shows(tuple(parts), asked.principal.jobs)


class Action(Struct, frozen=True):
    """An address to which forms of the dashboard are sent; decorates its function."""

    path: str
    right: Right | None
    do: Do = _undecorated
    of_job: bool = False
    question: Question | AskFirst | None = None  # that is asked first
    at_owner: AtOwner | None = None

    def __call__(self, do: D) -> D:
        """Put a function into the table of actions."""
        ACTIONS.append(replace(self, do=do, of_job=self.of_job or OF_JOB in self.path))
        return do


PAGES: list[DashboardPage] = []
ACTIONS: list[Action] = []


def lead_to(address: str) -> web.Response:
    """Redirect the browser to a page, after a form was handled."""
    return web.Response(status=web.HTTPSeeOther.status_code, headers={"Location": address})


async def coloured(source: SourceView | None, line: int | None = None) -> list[SourceLine]:
    """Colour a part of a file, in a thread; `line` is highlighted where the part itself highlights none."""
    if source is None or not source.lines:
        return []

    def colour_lines() -> list[SourceLine]:
        from spyweb.web.pages.lua_source import colour  # imports Pygments: only here, in a thread

        return colour("\n".join(source.lines), first=source.first, here=source.line or line)

    return await asyncio.to_thread(colour_lines)
