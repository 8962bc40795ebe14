"""Remove from a text the parts of an address, which may be secrets, and mentions that notify everybody."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable
from urllib.parse import unquote, unquote_plus, urlsplit

HIDDEN = "***"
SHORTEST = 5  # characters of a part that is hidden: shorter ones would be found in ordinary words
LONGEST_REASON = 300
CUT = 100  # characters: a text as long as that may be what is left of a longer one

_BETWEEN = re.compile(r"[^\w.~%+-]")
_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>()#+\-.!|~])")
# Mentions of everybody in chat programs, and the marks by which their protocols name a group, a role or a person.
_CALL = re.compile(r"@(?=everyone|here|channel|all|room)|<(?=[!@]|users/)", re.IGNORECASE)
_LOGIN = re.compile(r"^[^/?#]*@")


def hide_address(text: str, url: str, but: str = "") -> str:
    """Return one short line, without any part of the address of at least SHORTEST characters but one, its host."""
    parts = [part for part in secrets_of(url) if part.lower() != but.lower()]
    for part in parts:
        text = re.sub(re.escape(part), HIDDEN, text, flags=re.IGNORECASE)
    text = " ".join(text.split())[:LONGEST_REASON]
    if len(text) < CUT:
        return text
    lowered = text.lower()  # which was cut, maybe in the middle of a part
    ends = (n for part in parts for n in range(SHORTEST - 1, len(part)) if lowered.endswith(part[:n].lower()))
    longest = max(ends, default=0)
    return f"{text[:-longest]}{HIDDEN}" if longest else text


def hide_webhook(text: str, url: str, secrets: Iterable[str] = ()) -> str:
    """Return one short line, without these and without any part of a webhook's address but its host."""
    for secret in secrets:
        text = text.replace(secret, HIDDEN) if len(secret) >= SHORTEST else text
    try:
        parts = urlsplit(url)
    except ValueError:
        return hide_address(text, url)
    login, _, _ = parts.netloc.rpartition("@")
    return hide_address(
        text.replace(url, "its address"), f"webhook://{login}@{parts._replace(scheme='', netloc='').geturl()}"
    )


def call_nobody(text: str) -> str:
    """Return the text with its mentions disabled: a line of a log may hold `@everyone`."""
    return _CALL.sub("\\g<0>\u200b", text)


def escape_markdown(text: str) -> str:
    return _MARKDOWN.sub(r"\\\1", text)


def may_repeat_login(url: str) -> bool:
    """Tell whether an address has a name or a password that is too short to be hidden in every text."""
    login = _LOGIN.match(_after_scheme(url))
    return login is not None and any(0 < len(part) < SHORTEST for part in re.split(r"[:@]", login[0][:-1]))


def secrets_of(url: str) -> list[str]:
    """Return the parts of an address as they may be repeated, the longest first."""
    rest = _after_scheme(url)
    found = {rest, *_BETWEEN.split(rest), *re.split(r"[/?&=:@#]", rest)}
    login = _LOGIN.match(rest)
    if login:
        found.add(base64.b64encode(unquote(login[0][:-1]).encode("utf-8", "replace")).decode().rstrip("="))
    found |= {spelt(part) for part in tuple(found) for spelt in (unquote, unquote_plus)}
    return sorted((part for part in found if len(part) >= SHORTEST), key=len, reverse=True)


def _after_scheme(url: str) -> str:
    return url.split("://", 1)[-1]
