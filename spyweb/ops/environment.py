"""Let scripts see SPYWEB_* of the daemon's environment through env_get, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from spyweb.settings.sections import SECRETS

PREFIX = "SPYWEB_"


def visible_environment(environ: Mapping[str, str], deny: Iterable[str] = ()) -> dict[str, str]:
    """Return every SPYWEB_NAME as NAME, except those denied (with or without the prefix).

    The daemon's own secrets are always denied: no worker ever has them.  Bytes that are not UTF-8 are replaced.
    """
    denied = {name.removeprefix(PREFIX) for name in (*SECRETS, *deny)}
    return {
        _readable(name.removeprefix(PREFIX)): _readable(value)
        for name, value in environ.items()
        if name.startswith(PREFIX) and name != PREFIX and name.removeprefix(PREFIX) not in denied
    }


def _readable(text: str) -> str:
    """Python keeps bytes that are not UTF-8 as lone surrogates, which no frame can carry."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
