"""The pages Keys, with the audit trail, and Sign in."""

from __future__ import annotations

from aiohttp import web
from msgspec import Struct

from spyweb.errors import Refused
from spyweb.store.model.access import AccessKey, Scope
from spyweb.subjects.access.views import view_key
from spyweb.web.access.audit import AuditService
from spyweb.web.access.guard import ABOUT, TRAIL
from spyweb.web.access.headers import drop_session, set_session
from spyweb.web.access.keys import AccessService, NewToken, find_problem
from spyweb.web.access.principal import PUBLIC, Right, check_may_make_keys
from spyweb.web.access.recognise import RECOGNISER, TooManyTries, WrongKey, address_in
from spyweb.web.api.query import Natural
from spyweb.web.pages.page import Action, Asked, DashboardPage, PageMissing, PagePart, Question, Shown, lead_to
from spyweb.web.pages.site import answer_with

TEMPLATE, PLACE = "keys.html", "settings"
KEYS = 50
LINES = 50  # of the audit trail, at a time
SCOPES = (
    (Scope.READ, "see everything"),
    (Scope.RUN, "run, pause and cancel jobs, acknowledge, silence, begin maintenance"),
    (Scope.STATE, "change stored values, break locks"),
    (Scope.ADMIN, "all of these, and keys"),
)


class KeysQuery(Struct, frozen=True):
    """The pages of the keys and of the audit trail."""

    before: Natural = 0
    page: Natural = 1  # of the keys


@DashboardPage("keys", TEMPLATE, place=PLACE, right=Right.ADMIN, parts={"audit": PagePart("audit.html", ("audit",))})
async def show_keys(asked: Asked) -> Shown:
    """Show the keys and the audit trail."""
    query = asked.query(KeysQuery)
    return Shown(title="Keys", values=await values_of(asked, query), is_live=not query.before)


async def values_of(
    asked: Asked, query: KeysQuery, made: NewToken | None = None, problem: tuple[str, str] = ("", "")
) -> dict[str, object]:
    access, form = asked.services[AccessService], asked.form
    lines = await asked.services[AuditService].lines(limit=LINES + 1, before=query.before or None)
    keys = [view_key(key) for key in access.all_keys()]
    page = min(max(query.page, 1), max(1, -(-len(keys) // KEYS)))
    return {
        "lines": lines[:LINES],
        **asked.places(query, lines[LINES - 1].id if len(lines) > LINES else 0),
        "keys": keys[(page - 1) * KEYS : page * KEYS],
        "count": len(keys),
        "next_keys": page + 1 if page * KEYS < len(keys) else 0,
        "keys_before": page - 1,
        "is_open": access.is_open,
        "scopes": SCOPES,
        "made": made,
        "problem_of": problem[0],
        "problem": problem[1],
        "given": {"name": form.get("name", ""), "scope": form.get("scope", ""), "jobs": form.get("jobs", "")},
    }


@Action("keys", right=Right.ADMIN)
async def add_key(asked: Asked) -> web.Response:
    """Make a key, and show its token, once."""
    check_may_make_keys(asked.principal)
    form = asked.form
    name, jobs = form.get("name", "").strip(), form.get("jobs", "").replace(",", " ").split()
    scopes = [Scope(form["scope"])] if form.get("scope") in set(Scope) else []
    problem, made = find_problem(name, scopes, jobs) or find_wrong_key(asked), None
    asked.request[ABOUT] = name
    if problem is None:
        try:
            made = await asked.services[AccessService].add(name, scopes, jobs)
        except Refused as error:
            problem = "name", str(error)
    status = web.HTTPOk.status_code if made else web.HTTPUnprocessableEntity.status_code
    shown = Shown(title="Keys", values=await values_of(asked, KeysQuery(), made, problem or ("", "")), status=status)
    answer = await answer_with(asked, TEMPLATE, PLACE, shown)
    answer.headers["Cache-Control"] = "no-store"
    return answer


def find_wrong_key(asked: Asked) -> tuple[str, str] | None:
    """Return the problem of the key that was typed again: without it, a session can't make keys."""
    request = asked.request
    if asked.principal.source != "session":
        return None
    try:
        given = request.app[RECOGNISER].admit(asked.form.get("key", "").strip(), address_in(request))
    except WrongKey:
        request.app[TRAIL].note_wrong_key(request)
        return "key", "Unknown key."
    return None if given.name == asked.principal.name else ("key", "This is not the key that you signed in with.")


async def ask_before_revoking(asked: Asked) -> Question:
    return Question(
        title=f"Revoke the key {_key(asked).name}?",
        words="Requests with it are refused from now on, and its sessions end. This can't be undone.",
        button="Revoke the key",
    )


@Action("keys/{name}/revoke", right=Right.ADMIN, question=ask_before_revoking)
async def revoke_key(asked: Asked) -> web.Response:
    """Revoke a key, and end its sessions."""
    await asked.services[AccessService].revoke(_key(asked).name)
    return lead_to(asked.to("keys"))


def _key(asked: Asked) -> AccessKey:
    name = asked.request.match_info["name"]
    keys = asked.services[AccessService].all_keys()
    found = next((key for key in keys if key.name == name), None)
    if found is None:
        raise PageMissing("There is no such key")
    return found


SIGN_IN, SIGN_IN_PAGE = "sign-in", "sign_in.html"
WRONG = "Unknown key: it may have been revoked, or copied only in part."


class SignInQuery(Struct, frozen=True):
    """The page that the browser opens after signing in."""

    back: str = ""


@DashboardPage(SIGN_IN, SIGN_IN_PAGE, right=PUBLIC)
async def show_form(asked: Asked) -> Shown:
    """Ask for a key."""
    return _form(asked.query(SignInQuery).back)


@Action(SIGN_IN, right=PUBLIC)
async def sign_in(asked: Asked) -> web.Response:
    """Begin a session with the key that was typed."""
    request, access = asked.request, asked.services[AccessService]
    if access.is_open:
        return lead_to(asked.back())
    try:
        given = request.app[RECOGNISER].admit(asked.form.get("key", "").strip(), address_in(request))
    except TooManyTries as error:
        answer = await answer_with(asked, SIGN_IN_PAGE, "", _form(asked.back(), error.text or "", error.status))
        answer.headers["Retry-After"] = error.headers["Retry-After"]
        return answer
    except WrongKey as error:
        request.app[TRAIL].note_wrong_key(request)
        return await answer_with(asked, SIGN_IN_PAGE, "", _form(asked.back(), WRONG, error.status))
    _end_session(asked)  # this browser's session before, which nobody could end any more
    request.app[TRAIL].note_by(request, given.name, "session", web.HTTPSeeOther.status_code)
    away = lead_to(asked.back())
    set_session(request, away, access.sign_in(given))
    return away


@Action("sign-out", right=Right.READ, of_job=True)
async def sign_out(asked: Asked) -> web.Response:
    """End the session, and remove its cookie."""
    _end_session(asked)
    away = lead_to(asked.to(SIGN_IN))
    drop_session(asked.request, away)
    return away


def _end_session(asked: Asked) -> None:
    if asked.principal.session:
        asked.services[AccessService].sign_out(asked.principal.session)


def _form(back: str, error: str = "", status: int = 200) -> Shown:
    return Shown(title="Sign in", values={"error": error, "back": back}, status=status)
