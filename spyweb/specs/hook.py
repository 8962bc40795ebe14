"""Read the `hook` of a job: how a request to /api/hooks/JOB shows that it may start the job.  Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

from spyweb.model import HookSigning, JobHook
from spyweb.settings.reading import unknown
from spyweb.settings.secret_places import SECRET_PLACE, secret_place
from spyweb.settings.shapes import TEXT, Schema, list_of, shaped, table_of
from spyweb.settings.values import choice, text, texts, wrong

KEYS = ("secret", "hmac", "headers")
SIGNINGS = {signing.value: signing for signing in HookSigning if signing is not HookSigning.PLAIN}
MOST_HEADERS = 32

_EXPECTED = '{ secret = "env:NAME", hmac = "github" }'
_HEADER = re.compile(r"[a-z0-9-]+")
_SCHEMA: dict[str, Schema] = {
    "secret": SECRET_PLACE,
    "hmac": {"enum": [*SIGNINGS]},
    "headers": list_of(TEXT),
}


@shaped(table_of(_SCHEMA))
def read_hook(value: object) -> JobHook:
    """Read a `hook`.  Raises ValueError with what was expected."""
    if not isinstance(value, Mapping):
        raise wrong(_EXPECTED, value)
    for key in value:
        if key not in KEYS:
            raise ValueError(f"{unknown('key', key, KEYS)} ({key!r})")
    if "hmac" in value and "secret" not in value:
        raise ValueError("hmac signs with a secret: expected secret as well")
    return JobHook(
        secret=_secret(value["secret"]) if "secret" in value else "",
        signing=_signing(value["hmac"]) if "hmac" in value else HookSigning.PLAIN,
        headers=_headers(value.get("headers", ())),
    )


def _secret(value: object) -> str:
    try:
        return secret_place(value)
    except ValueError as error:
        raise ValueError(f"secret: {error}") from None


def _signing(value: object) -> HookSigning:
    if value not in SIGNINGS:
        raise wrong(f"{choice([*SIGNINGS])} for hmac", value)
    return SIGNINGS[text(value)]


def _headers(value: object) -> tuple[str, ...]:
    names = tuple(name.lower() for name in texts(value)) if value else ()
    if len(names) > MOST_HEADERS:
        raise ValueError(f"headers: expected at most {MOST_HEADERS}")
    for name in names:
        if not _HEADER.fullmatch(name):
            raise ValueError(f"headers: {name[:80]!r} is no name of a header")
    return names
