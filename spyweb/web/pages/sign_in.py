"""Sign in with a key, and out."""

from __future__ import annotations

from aiohttp import web
from msgspec import Struct

from spyweb.web.access.cookies import drop_session, set_session
from spyweb.web.access.guard import TRAIL
from spyweb.web.access.keys import AccessService
from spyweb.web.access.principal import PUBLIC, Right
from spyweb.web.access.recognise import RECOGNISER, TooManyTries, WrongKey, address_in
from spyweb.web.pages.page import Action, Asked, DashboardPage, Shown, lead_to
from spyweb.web.pages.site import answer_with

SIGN_IN, SIGN_IN_PAGE = "sign-in", "sign_in.html"
WRONG = "This key is not known here. It may have been revoked, or not copied as a whole."


class SignInQuery(Struct, frozen=True):
    """Where the browser goes then."""

    back: str = ""


@DashboardPage(SIGN_IN, SIGN_IN_PAGE, right=PUBLIC)
async def show_form(asked: Asked) -> Shown:
    """Ask for a key."""
    return _form(asked.query(SignInQuery).back)


@Action(SIGN_IN, right=PUBLIC)
async def sign_in(asked: Asked) -> web.Response:
    """Begin a session of the key that was typed."""
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
    _end_session(asked)  # the one that this browser had before: nobody could end it any more
    request.app[TRAIL].note_session(request, given.name, web.HTTPSeeOther.status_code)
    away = lead_to(asked.back())
    set_session(request, away, access.sign_in(given))
    return away


@Action("sign-out", right=Right.READ, of_job=True)
async def sign_out(asked: Asked) -> web.Response:
    """End the session, here and in the browser."""
    _end_session(asked)
    away = lead_to(asked.to(SIGN_IN))
    drop_session(asked.request, away)
    return away


def _end_session(asked: Asked) -> None:
    given = asked.principal.given
    if given and given.session:
        asked.services[AccessService].sign_out(given.session)


def _form(back: str, error: str = "", status: int = 200) -> Shown:
    return Shown(title="Sign in", values={"error": error, "back": back}, status=status)
