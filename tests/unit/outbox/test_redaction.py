"""What is taken out of a reason, and of a text."""

from __future__ import annotations

import pytest

from spyweb.outbox.redaction import (
    LONGEST_REASON,
    call_nobody,
    escape_markdown,
    hide_address,
    hide_webhook,
    may_repeat_login,
)

URL = "https://user:pass%20word@hooks.example/T0K3N/path?key=s3cret#frag1"


@pytest.mark.parametrize(
    "repeated",
    [
        URL,
        "T0K3N",
        "t0k3n",
        "pass%20word",
        "pass word",
        "s3cret",
        "hooks.example",
        "dXNlcjpwYXNzIHdvcmQ=",  # as a header has it
    ],
)
def test_no_part_of_an_address_is_repeated(repeated: str) -> None:
    found = hide_address(f"401 for {repeated}: go away", URL)

    assert repeated.lower().rstrip("=") not in found.lower()
    assert "***" in found
    assert "go away" in found


def test_of_a_webhook_the_host_may_be_told_and_nothing_else() -> None:
    url = "https://user:passw0rd@hooks.example:8443/hook/T0K3N?key=s3cret"
    told = f"connect: {url}: no route to hooks.example; Cannot POST /hook/T0K3N?key=s3cret as user:passw0rd, t0pl3vel"
    found = hide_webhook(told, url, ["t0pl3vel", "a"])
    assert found.startswith("connect: its address: no route to hooks.example; Cannot POST")
    assert not any(secret in found for secret in ("T0K3N", "s3cret", "passw0rd", "t0pl3vel"))


def test_a_reason_is_one_short_line() -> None:
    found = hide_address("a\n\tb " + "word " * 200, "ntfy://topic")
    assert found.startswith("a b word")
    assert len(found) <= LONGEST_REASON


@pytest.mark.parametrize(
    ("url", "may"),
    [
        ("mailto://me:pw@host", True),
        ("mailto://somebody:password@host", False),
        ("ntfy://topic", False),
        ("slack://a/b/c@d", False),
    ],
)
def test_a_login_too_short_to_be_hidden_is_noticed(url: str, may: bool) -> None:
    assert may_repeat_login(url) == may


def test_the_beginning_of_a_secret_at_which_a_text_was_cut_is_hidden() -> None:
    for end, shown in (("s3cr", "***"), ("s3c", "s3c"), ("word", "word")):
        found = hide_address(f"{'x ' * 60}{end}", URL)
        assert found == f"{'x ' * 60}{shown}"
    assert hide_address("it is a s3cr", URL) == "it is a s3cr"  # nothing was cut


def test_markdown_of_a_text_stands_there_as_it_is() -> None:
    assert escape_markdown("*a* [b](c) `d` <@1>") == r"\*a\* \[b\]\(c\) \`d\` \<@1\>"


def test_nobody_is_called_by_a_text() -> None:
    assert call_nobody("@everyone @Here me@example.org") == "@\u200beveryone @\u200bHere me@example.org"
    for mark in ("@room", "<!channel>", "<!subteam^S1>", "<@&42>", "<@42>", "<@U1>", "<users/all>"):
        assert call_nobody(f"a {mark}") == f"a {mark[0]}\u200b{mark[1:]}"
    assert call_nobody("<b>1 < 2</b> <me@example.org>") == "<b>1 < 2</b> <me@example.org>"
