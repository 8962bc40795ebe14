"""Read how requests lead to a job and away from it: its `hook`, by which others start it, and its `ping_url`.  Pure."""

from __future__ import annotations

import re

from spyweb.model import HookSigning, JobHook, PingAddresses
from spyweb.settings.addresses import address_template, secret_place
from spyweb.settings.reading import Reading, Tables
from spyweb.settings.shapes import NOT_BLANK, TEXT, list_of, shaped, wrong
from spyweb.settings.values import one_of, texts

MOST_HEADERS = 32
OF_JOB = "{job}"  # in an address of `ping_url`: the id of the job

_HEADER = re.compile(r"[a-z0-9-]+")
_SIGNING = one_of(HookSigning, HookSigning.PLAIN)


def take_hook(read: Reading) -> JobHook:
    if read.has("hmac") and not read.has("secret"):
        read.refuse("signs with a secret: expected secret as well", "hmac")
    return JobHook(
        secret=read.take("secret", secret_place, ""),
        signing=read.take("hmac", _SIGNING, None) or HookSigning.PLAIN,
        headers=read.take("headers", _headers, ()),
    )


@shaped(list_of(TEXT))
def _headers(value: object) -> tuple[str, ...]:
    names = tuple(name.lower() for name in texts(value))
    if len(names) > MOST_HEADERS:
        raise ValueError(f"expected at most {MOST_HEADERS}")
    for name in names:
        if not _HEADER.fullmatch(name):
            raise ValueError(f"{name[:80]!r} is no name of a header")
    return names


def take_ping(read: Reading) -> PingAddresses:
    return PingAddresses(
        start=read.take("start", _address, None) or "",
        success=read.take("success", _address, None) or "",
        fail=read.take("fail", _address, None) or "",
    )


@shaped(NOT_BLANK)
def _address(value: object) -> str:
    """Read an address.  Raises ValueError, which tells nothing of it."""
    if not isinstance(value, str):
        raise wrong(PING.expected, value)
    if not value.strip():
        raise ValueError("can't be blank")
    address_template(value.replace(OF_JOB, "job"))
    return value.strip()


@shaped(NOT_BLANK)
def _all_addresses(value: object) -> PingAddresses:
    return PingAddresses(base=_address(value))


HOOK = Tables(take=take_hook, expected='{ secret = "env:NAME", hmac = "github" }', alone=True, most=1)
PING = Tables(
    take=take_ping,
    expected="an address, or { start = …, success = …, fail = … }",
    instead=_all_addresses,
    alone=True,
    most=1,
)
