"""Serve the dashboard: the handlers of its pages, actions and static files, and the frame of pages.

Pages are compressed, and sent with headers that forbid everything they do not use.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import platform
import secrets
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from aiohttp import web
from aiohttp.typedefs import Handler
from msgspec.structs import replace

from spyweb import __version__
from spyweb.errors import SpywebError
from spyweb.events.changes import ChangeHub, PageFollower, Shows
from spyweb.settings.reading import Names
from spyweb.web.access.guard import API
from spyweb.web.access.headers import THEME
from spyweb.web.access.principal import NOBODY, PRINCIPAL, PUBLIC
from spyweb.web.access.recognise import AccessRule, check_page
from spyweb.web.answer import ERROR_HEADERS, WholeAnswer, bytes_answer, status_of, wants_page
from spyweb.web.api.query import whole_number
from spyweb.web.api.route import PageRoute
from spyweb.web.api.services import SERVICES
from spyweb.web.body import LARGEST_FORM, LARGEST_PUBLIC_FORM, read_form
from spyweb.web.event_streams import PAGE_STREAMS, send_events
from spyweb.web.pages.frame import API_DOCS, BAR, SETTINGS, STARTED, Link, PageFrame, with_started
from spyweb.web.pages.page import OF_JOB, Action, Asked, DashboardPage, PageMissing, Question, Shown, lead_to

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

if TYPE_CHECKING:
    from spyweb.web.pages.render import Renderer

THEMES = frozenset({"light", "dark"})  # of the cookie
A_YEAR_S = 31_536_000
PATIENCE_S = 10.0  # for a page, while others wait

LONG = 8192  # bytes of a page from which on it is compressed in a thread
LEVEL = 6
FOREVER = f"public, max-age={A_YEAR_S}, immutable"  # new content has a new address

FOLDER = Path(__file__).parent / "static"
TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
TAG_LENGTH = 12
STATIC_LEVEL = 9  # they are compressed once

HEADERS = {**ERROR_HEADERS, "Referrer-Policy": "same-origin", "Cross-Origin-Opener-Policy": "same-origin"}
# Only the script that a page itself names runs: no other file of this origin.
POLICY = "default-src 'self'; script-src 'nonce-{}'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
PAGE_HEADERS = {**HEADERS, "Cache-Control": "private, no-cache", "Vary": "Accept-Encoding, Cookie"}

TITLES: Mapping[int, str] = {
    400: "Invalid request",
    403: "Not permitted",
    404: "There is no such page",
    405: "Not possible here",
    409: "Not possible now",
    413: "Too large",
    415: "Invalid format",
    422: "Invalid input",
    429: "Too many attempts",
    503: "Busy",
}


def page_routes(pages: Iterable[DashboardPage], actions: Iterable[Action]) -> list[PageRoute]:
    """Return every address of the dashboard."""
    routes = [
        PageRoute("GET", f"/{each.path}", page_handler(each), AccessRule(each.right, each.of_job, each.at_owner))
        for each in pages
    ]
    routes += [
        PageRoute("POST", f"/{each.path}", action_handler(each), AccessRule(each.right, each.of_job, each.at_owner))
        for each in actions
    ]
    return [*routes, PageRoute("GET", "/static/{version}/{name}", serve_static, AccessRule(PUBLIC))]


def page_handler(page: DashboardPage) -> Handler:
    """Answer with a page; `?live=MARK`: with a stream of later marks, `?since=MARK`: with the parts that changed."""

    async def handle(request: web.Request) -> web.StreamResponse:
        asked = await ask(request)
        if page.is_live:
            changes, shows = asked.services[ChangeHub], page.shows(asked)
            if "live" in request.query:
                return await follow_page(asked, page, shows)
            if changes.knows(shows, request.query.get("since", "")):
                return await answer_changes(asked, page, shows)
            if OF_JOB in page.path:
                asked.job()  # no mark is kept for an address that does not exist
            asked = replace(asked, mark=changes.mark(shows))  # before anything is read
        return await answer_with(asked, page.template, page.place, await page.show(asked))

    return handle


async def follow_page(asked: Asked, page: DashboardPage, shows: Shows) -> web.StreamResponse:
    """Stream later marks to a page that the client may see."""
    request, changes = asked.request, asked.services[ChangeHub]
    mark = request.headers.get("Last-Event-ID") or request.query["live"]

    async def follow(wake: Callable[[], None]) -> PageFollower:
        async with changes.turn():
            await page.show(replace(asked, parts=["title"]))
        return changes.follow(shows, mark, wake)

    return await send_events(request, request.app[PAGE_STREAMS], follow)


async def answer_changes(asked: Asked, page: DashboardPage, shows: Shows) -> web.Response:
    """Answer with the changed parts: elements with ids, made by the page's own function for this client."""
    changes, request, since = asked.services[ChangeHub], asked.request, asked.request.query["since"]
    try:
        async with changes.turn(), asyncio.timeout(PATIENCE_S):
            if request.transport is None:
                return web.Response()  # the client has disconnected
            parts = changes.changed(shows, since)  # also changes while others had their turn
            asked = replace(asked, mark=changes.mark(shows), since=since, parts=parts or ())
            if parts is None:
                return await answer_with(asked, page.template, page.place, await page.show(asked))
            # Even without parts: the page may have to answer that it no longer exists.
            templates, shown, frame = page.parts_of(asked), await page.show(asked), await frame_of(asked, page.place)
            html = dict(shown.html)
            for name in [each for each in asked.parts if each in templates]:
                values = {**shown.values, "title": shown.title, "name": name.removeprefix("count-")}
                html[name] = asked.renderer.part(templates[name].template, frame, values)
    except TimeoutError as error:
        raise web.HTTPServiceUnavailable(text="this page takes too long") from error
    answer = await send_page(request, "\n".join(html.values()), "")
    answer.headers["Spyweb-Mark"] = asked.mark
    return answer


def action_handler(wanted: Action) -> Handler:
    async def handle(request: web.Request) -> web.StreamResponse:
        if wanted.right is PUBLIC:  # the guard has checked the others
            check_page(request)
        largest = LARGEST_PUBLIC_FORM if wanted.right is PUBLIC else LARGEST_FORM
        asked = await ask(request, await read_form(request, largest))
        question = None
        if wanted.question and asked.form.get("sure") != "yes":
            question = wanted.question if isinstance(wanted.question, Question) else await wanted.question(asked)
        if question is None:
            return await wanted.do(asked)
        values = {
            "question": question.words,
            "button": question.button,
            "action": request.path_qs,
            "fields": [(name, value) for name, value in asked.form.items() if name != "sure"],
            "back": asked.back(),
        }
        return await answer_with(asked, "ask.html", "", Shown(title=question.title, values=values))

    return handle


async def ask(request: web.Request, form: Mapping[str, str] | None = None) -> Asked:
    return Asked(
        request=request,
        principal=request.get(PRINCIPAL, NOBODY),
        services=request.app[SERVICES],
        renderer=await asyncio.to_thread(renderer),
        form=form or {},
    )


@cache
def renderer() -> Renderer:
    """Return the renderer; it is imported at the first page, as that takes time and memory."""
    from spyweb.web.pages.render import Renderer

    return Renderer(static_address)


async def answer_with(asked: Asked, template: str, place: str, shown: Shown) -> web.Response:
    frame = await frame_of(asked, place, asked.mark if shown.is_live else "")
    # In a thread: the first time a template is compiled, and a page of a hundred rows takes several milliseconds.
    values = {**shown.values, "title": shown.title}
    text = await asyncio.to_thread(asked.renderer.part, shown.template or template, frame, values)
    return await send_page(asked.request, text, frame.nonce, shown.status)


async def frame_of(asked: Asked, place: str, live: str = "") -> PageFrame:
    """Return the frame of a page; an unknown client learns nothing from it."""
    request, principal = asked.request, asked.principal
    is_known = principal.source != "nobody"
    outlook = await asked.outlook() if is_known else None
    theme = request.cookies.get(THEME, "")
    return PageFrame(
        host=platform.node(),
        version=__version__,
        moments=asked.moments,
        started=whole_number(request.query.get(STARTED, "")) if is_known else None,
        here=with_started(request.path_qs if request.method in ("GET", "HEAD") else asked.back()),
        place=place,
        state=outlook.state if outlook else "ok",
        counts=outlook.counts if outlook else {},
        theme=theme if theme in THEMES else "",
        is_known=is_known,
        has_nodes=asked.services.forwarder is not None,
        sees_all=not principal.jobs,
        who=principal.name if principal.source == "session" else "",
        may=principal.rights,
        live=live,
        nonce=secrets.token_urlsafe(16),
    )


@Action("theme", right=PUBLIC)
async def choose_theme(asked: Asked) -> web.Response:
    """Store the choice of colours in a cookie, so that a page has the right ones from its first byte on."""
    chosen = asked.form.get("theme", "")
    away = lead_to(asked.back())
    if chosen in THEMES:
        away.set_cookie(THEME, chosen, max_age=A_YEAR_S, samesite="Lax", httponly=True)
    else:
        away.del_cookie(THEME)
    return away


@web.middleware
async def showing_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Show the errors of pages as pages; the API's stay JSON."""
    try:
        return await handler(request)
    except (web.HTTPError, SpywebError) as error:
        if not wants_page(request) or (request.path.startswith(API) and request.path != API_DOCS):
            raise
        return await _error_page(await ask(request), error)


async def _error_page(asked: Asked, error: web.HTTPError | SpywebError) -> web.Response:
    status = status_of(error)[0] if isinstance(error, SpywebError) else error.status
    if status == web.HTTPUnauthorized.status_code:
        values = {"error": "", "back": asked.request.path_qs}
        return await answer_with(asked, "sign_in.html", "", Shown(title="Sign in", values=values, status=status))
    close: Sequence[Link] = []
    if isinstance(error, PageMissing):
        title, reason, close = error.title, "", error.close
    elif isinstance(error, SpywebError):
        title, reason = TITLES.get(status, "Error"), str(error)
    else:
        title = TITLES.get(status, error.reason)
        reason = error.text if error.text and error.text != f"{status}: {error.reason}" else ""
        if status == web.HTTPNotFound.status_code:  # it may mean an entry of the navigation
            entries = {entry.path: Link(entry.words, f"/{entry.path}") for entry in (*BAR, *SETTINGS) if entry.path}
            nearest = Names(entries).nearest(asked.request.path.removeprefix("/").partition("/")[0])
            close = [entries[nearest]] if nearest else []
    shown = Shown(title=title, values={"reason": reason, "close": close}, status=status)
    return await answer_with(asked, "error.html", "", shown)


async def send_page(request: web.Request, text: str, nonce: str, status: int = 200) -> web.Response:
    """Answer with a page, compressed as the browser accepts it; only scripts with this nonce run."""
    body = text.encode("utf-8", "replace")
    headers = {**PAGE_HEADERS, "Content-Security-Policy": POLICY.format(nonce)}
    parts = request.headers.get("Accept-Encoding", "").lower().split(",")
    accepted = {part.partition(";")[0].strip() for part in parts}
    encoding = next((each for each in ("zstd", "gzip") if each in accepted), "")
    if encoding:
        body = await asyncio.to_thread(compress, body, encoding) if len(body) >= LONG else compress(body, encoding)
        headers["Content-Encoding"] = encoding
    return WholeAnswer(body=body, status=status, content_type="text/html", charset="utf-8", headers=headers)


def compress(body: bytes, encoding: str) -> bytes:
    return zstd.compress(body, LEVEL) if encoding == "zstd" else gzip.compress(body, LEVEL, mtime=0)


@cache
def static_files() -> tuple[Mapping[str, tuple[bytes, bytes]], str]:
    """Return the files of this process, each as it is and compressed; they are read at the first page, in a thread.

    All have one version, which is a part of their addresses: so a file that imports another gets the same version.
    """
    bodies = {path.name: path.read_bytes() for path in sorted(FOLDER.iterdir()) if path.suffix in TYPES}
    files = {name: (body, gzip.compress(body, STATIC_LEVEL, mtime=0)) for name, body in bodies.items()}
    return files, hashlib.sha256(b"".join(bodies.values())).hexdigest()[:TAG_LENGTH]


def static_address(name: str) -> str:
    """Return the address of a file.  Raises KeyError where there is none."""
    files, version = static_files()
    if name not in files:
        raise KeyError(name)
    return f"/static/{version}/{name}"


async def serve_static(request: web.Request) -> web.Response:
    (files, version), name = await asyncio.to_thread(static_files), request.match_info["name"]
    if name not in files:
        raise web.HTTPNotFound
    keep = FOREVER if request.match_info["version"] == version else "no-cache"
    kind = f"{TYPES[Path(name).suffix]}; charset=utf-8"
    return bytes_answer(request, *files[name], {**HEADERS, "Cache-Control": keep, "Content-Type": kind})
