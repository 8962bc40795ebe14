"""Read the `ping_url` of a job: where a watcher elsewhere, such as Healthchecks, is told of its runs.  Pure."""

from __future__ import annotations

from collections.abc import Mapping

from spyweb.model import PingAddresses
from spyweb.settings.addresses import address_template
from spyweb.settings.reading import unknown
from spyweb.settings.shapes import NOT_BLANK, shaped, table_of
from spyweb.settings.values import wrong

KEYS = ("start", "success", "fail")
OF_JOB = "{job}"  # in an address: the id of the job

_EXPECTED = "an address, or { start = …, success = …, fail = … }"


@shaped({"anyOf": [NOT_BLANK, table_of(dict.fromkeys(KEYS, NOT_BLANK))]})
def read_ping_url(value: object) -> PingAddresses:
    """Read a `ping_url`.  Raises ValueError, which tells nothing of an address."""
    if isinstance(value, str):
        if not value.strip():
            raise ValueError("can't be blank")
        return PingAddresses(base=_address(value))
    if not isinstance(value, Mapping) or not value:
        raise wrong(_EXPECTED, value)
    for key in value:
        if key not in KEYS:
            raise ValueError(f"{unknown('key', key, KEYS)} ({key!r})")
    start, success, fail = (_address(value[key]) if key in value else "" for key in KEYS)
    return PingAddresses(start=start, success=success, fail=fail)


def _address(value: object) -> str:
    if isinstance(value, str):
        address_template(value.replace(OF_JOB, "job"))
        return value.strip()
    raise wrong(_EXPECTED, value)
