"""The cookie of a session: what a browser is told about it."""

from __future__ import annotations

from http.cookies import Morsel, SimpleCookie

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from spyweb.web.access.cookies import HOSTS, PORT, drop_session, is_secure, session_cookie, set_session


def asked(**headers: str) -> web.Request:
    app = web.Application()
    app[HOSTS], app[PORT] = ("spyweb.example.org",), 7979
    return make_mocked_request(
        "GET", "/", headers={name.replace("_", "-"): text for name, text in headers.items()}, app=app
    )


def morsel(answer: web.Response) -> Morsel[str]:
    cookies: SimpleCookie = answer.cookies
    (found,) = cookies.values()
    return found


PROXIED = {"Host": "spyweb.example.org", "X_Forwarded_Proto": "https"}


@pytest.mark.parametrize(
    ("headers", "secure"),
    [
        ({"Host": "spyweb.example.org"}, False),
        (PROXIED, True),
        ({**PROXIED, "Host": "SPYWEB.example.org:443"}, True),
        ({**PROXIED, "Host": "other.example"}, False),
        ({**PROXIED, "X_Forwarded_Proto": "http"}, False),
        ({"X_Forwarded_Proto": "https"}, False),
    ],
)
def test_a_proxy_is_believed_only_under_a_name_that_the_settings_list(headers: dict[str, str], secure: bool) -> None:
    assert is_secure(asked(**headers)) is secure


def test_the_cookie_is_for_this_server_alone() -> None:
    answer = web.Response()
    set_session(asked(Host="localhost"), answer, "abc")

    found = morsel(answer)
    assert (found.key, found.value, found["path"], found["samesite"]) == ("spyweb_7979", "abc", "/", "Strict")
    assert (found["httponly"], found["secure"], found["domain"]) == (True, False, "")
    assert found["max-age"] == str(7 * 24 * 3600)


def test_behind_tls_it_is_secure_and_no_other_host_can_set_it() -> None:
    request, answer = asked(**PROXIED), web.Response()
    set_session(request, answer, "abc")

    found = morsel(answer)
    assert (found.key, found["secure"]) == ("__Host-spyweb_7979", True)
    assert session_cookie(asked(**PROXIED, Cookie="__Host-spyweb_7979=abc; spyweb_7979=other")) == "abc"
    assert session_cookie(asked(**PROXIED, Cookie="spyweb_7979=other")) == ""


def test_a_session_that_is_over_takes_its_cookie_along() -> None:
    answer = web.Response()
    drop_session(asked(), answer)
    assert (morsel(answer).key, morsel(answer)["max-age"]) == ("spyweb_7979", "0")
