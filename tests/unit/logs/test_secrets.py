from __future__ import annotations

import pytest

from spyweb.logs.secrets import HIDDEN, Secrets, hide_fields, is_secret
from spyweb.web.access.keys import make_token

SECRET = ("api_key", "SPYWEB_API_KEY", "X-SpyWeb-Key", "password", "client_secret", "Authorization", "set-cookie")
ORDINARY = ("key", "job", "keyboard", "passed", "reason", 1, None)


@pytest.mark.parametrize(
    ("name", "says_so"), [*((name, True) for name in SECRET), *((name, False) for name in ORDINARY)]
)
def test_a_name_may_say_secret(name: object, says_so: bool) -> None:
    assert is_secret(name) == says_so


def test_tables_are_looked_through_but_not_for_ever() -> None:
    loop: dict[str, object] = {"token": "abc"}
    loop["self"] = loop
    assert str(hide_fields(loop)).count(HIDDEN) >= 4


def test_a_short_value_hides_no_ordinary_words() -> None:
    assert Secrets(["a", ""]).hide_in_text("a banana") == "a banana"


def test_an_address_with_an_at_sign_is_left_alone() -> None:
    assert Secrets().hide_in_text("mail me@example.org at 10:30") == "mail me@example.org at 10:30"


def test_the_token_of_a_key_is_known_by_its_form() -> None:
    token = make_token()
    hidden = Secrets().hide_in_text(f"sent {token}, {token}!")
    assert hidden == f"sent {token[:15]}[hidden], {token[:15]}[hidden]!"
    assert Secrets().hide_in_text("spyweb_7979 is a cookie") == "spyweb_7979 is a cookie"


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("token=hunter2 <b>", "token=[hidden] <b>"),
        ("Authorization: Bearer hunter2", "Authorization: [hidden]"),
        ("{'db_password_2': 'hunter2'}", "{'db_password_2': '[hidden]'}"),
        ("GET /x?api_key=hunter2&y=1", "GET /x?api_key=[hidden]&y=1"),
        ("https://me:hunter2@example.org", "https://me:[hidden]@example.org"),
        ("3 tokens left of 10: fine", "3 tokens left of 10: fine"),
    ],
)
def test_what_follows_the_name_of_a_secret_is_hidden_in_prose(text: str, hidden: str) -> None:
    assert Secrets().hide_in_prose(text) == hidden


@pytest.mark.parametrize("text", ["token", "token=", "-", "secret ", 'token="', "a."])
def test_no_line_takes_long(text: str) -> None:
    Secrets().hide_in_prose(text * (200_000 // len(text)))
