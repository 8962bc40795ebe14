"""Parse the settings that only monitors have, from their config.toml or their table in jobs.toml."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from urllib.parse import urlsplit

from spyweb.errors import Problem
from spyweb.incidents.policy import Level
from spyweb.model import (
    Field,
    FirstFind,
    JobSpec,
    Monitor,
    Notification,
    OnEmpty,
    OnHookError,
    Proxies,
    Rotation,
    Webhook,
)
from spyweb.ops.network.request import check_authority
from spyweb.settings.addresses import secret_place
from spyweb.settings.alerts import CHANNEL_NAMES, AlertSettings
from spyweb.settings.reading import (
    NOT_BLANK,
    TEXT,
    Reading,
    Schema,
    list_of,
    nearest,
    one_or_many,
    shaped,
    table_of,
    wrong,
)
from spyweb.settings.units import DAY_MS
from spyweb.settings.values import boolean, choice, headers, one_line, one_of, text, texts, whole

REQUIRED = ("name", "selector", "fields")
ADDRESSES = ("url", "urls")  # one of them
SELECTORS = ("selector", "fields")

WEB = ("http", "https")
PROXIES = (*WEB, "socks4", "socks4a", "socks5", "socks5h")
USUAL = ((200, 299),)  # statuses of a page that is there
FIELD_KEYS = ("name", "selector", "att")

TAKEN = {  # names that a field should not have, and what would hide it
    "fields": "in hooks `item.fields` is the table of all fields",
    "keywords": "in a webhook's JSON `keywords` are those found in the item",
    "matches": "in hooks `item.matches` are the keywords found in the item",
}

_FIELD_EXPECTED = '"name:selector", "name:selector@attribute" or { name = "…", selector = "…", att = "…" }'
_ATTRIBUTE = re.compile(r"(.*)@\s*([A-Za-z_][A-Za-z0-9_:.-]*)\s*", re.DOTALL)
_STATUSES = re.compile(r"\s*([1-5]\d\d)\s*-\s*([1-5]\d\d)\s*")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")
SHOWN = 80  # characters of a field that a message repeats
_NO_COLON = re.compile(r"(\w*)(?=[\s=.#>\[,+~])[\s=,]*([^\s=,].*)", re.DOTALL)  # a name, and surely a selector

_ADDRESS: Schema = {"type": "string", "pattern": r"^\s*[A-Za-z][A-Za-z0-9+.\-]*:"}
_WEB_ADDRESS: Schema = {"type": "string", "pattern": r"^\s*[Hh][Tt][Tt][Pp][Ss]?://"}
_PROXY_ADDRESS: Schema = {"type": "string", "pattern": rf"^\s*({'|'.join(PROXIES)})://"}
_URL = shaped(_ADDRESS)(lambda value: absolute_url(value, ()))  # of any scheme: a hook that fetches may use its own
_URLS = shaped(list_of(_ADDRESS, minItems=1), list)(lambda value: _several(value, "an absolute URL", ()))
_WEB_URL = shaped(_WEB_ADDRESS)(lambda value: absolute_url(value, WEB))
_PROXY_URLS = shaped(list_of(_PROXY_ADDRESS, minItems=1), list)(lambda value: _several(value, "a proxy's URL", PROXIES))
_FIELD: Schema = {"anyOf": [NOT_BLANK, table_of({"name": NOT_BLANK, "selector": TEXT, "att": TEXT}, "name")]}
_STATUS: Schema = {
    "anyOf": [
        {"type": "integer", "minimum": 100, "maximum": 599},
        {"type": "string", "pattern": rf"^{_STATUSES.pattern}$"},
    ]
}


def take_monitor(read: Reading, on_hook_error: OnHookError, alerts: AlertSettings) -> Monitor | None:
    """Take a monitor's settings; return None, with problems noted, where something required is missing or wrong."""
    url, urls = read.take("url", _URL, None), read.take("urls", _URLS, None)
    is_queue = read.has("urls")
    if not is_queue:
        read.require("url")
        urls = (url,) if url else ()
    selector = read.take("selector", _selector, None)
    fields = read.take("fields", item_fields, None)
    read.require("selector", "fields")
    names = [field.name for field in fields or ()]
    _doubt_fields(read, names)
    monitor = Monitor(
        urls=urls or (),
        is_queue=is_queue,
        selector=selector or "",
        fields=fields or (),
        workers=read.take("workers", whole(1, 1_000), 1),
        keywords=read.take("keywords", _keywords, ()),
        search_fields=_take_names(read, "search_fields", names),
        hash_fields=_take_names(read, "hash_fields", names),
        track=_take_names(read, "track", names),
        first=read.take("first", one_of(FirstFind), FirstFind.ANNOUNCE),
        to=_take_channels(read, alerts),
        headers=read.take("headers", headers, ()),
        proxies=_take_proxies(read),
        webhook=_take_webhook(read),
        notification=_take_notification(read.below("notification")),
        debug=read.take("debug", boolean, False),
        on_hook_error=on_hook_error,
        expect_status=read.take("expect_status", _statuses, USUAL),
        min_items=read.take("min_items", whole(0, 1_000_000), None),
        on_empty=read.take("on_empty", one_of(OnEmpty), OnEmpty.WARN),
        empty_after=read.take("empty_after", whole(1, 1_000), 3),
        places={key: read.problem("", key) for key in SELECTORS},
    )
    for name in sorted({*monitor.track} & {*monitor.hash_fields}):
        read.refuse(f"{name!r} is in hash_fields too: a field tells which item it is, or is tracked", "track")
    if monitor.track and "old" in names:
        read.doubt(
            "a field had better not be called 'old': in hooks `item.old` has the tracked fields before", "fields"
        )
    return monitor if urls and selector and fields else None


def selector_problem(spec: JobSpec, key: str, reason: str) -> Problem:
    """Return the problem that an extractor found with a selector, with the file and line of that selector."""
    place = spec.monitor.places.get(key) if spec.monitor else None
    return replace(place or Problem(spec.path, None, key, ""), reason=reason)


def _doubt_fields(read: Reading, names: Collection[str]) -> None:
    fields = read.raw("fields")
    tables = [field for field in fields if isinstance(field, Mapping)] if isinstance(fields, list) else []
    for key in dict.fromkeys(key for table in tables for key in table):
        if key not in FIELD_KEYS:
            read.doubt(f"unknown key{nearest(key, FIELD_KEYS)} ({key!r} in a field)", "fields")
    if doubt := doubt_colon(fields if isinstance(fields, list) else ()):
        read.doubt(doubt, "fields")
    for name in names:
        if name in TAKEN:
            read.doubt(f"a field had better not be called {name!r}: {TAKEN[name]}", "fields")


def doubt_colon(fields: Collection[object]) -> str:
    """Return a warning about the first field with a selector but no colon; an empty text where there is none."""
    bare = (each.strip() for each in fields if isinstance(each, str) and ":" not in each)
    split = next(filter(None, map(_NO_COLON.fullmatch, bare)), None)
    meant = f"{split[1] or 'name'}:{split[2]}"[:SHOWN] if split else ""
    return f"{split[0][:SHOWN]!r} has no colon, so takes the whole item; did you mean {meant!r}?" if split else ""


def _take_names(read: Reading, key: str, fields: Collection[str]) -> tuple[str, ...]:
    """Take a list of field names, each of which must be a field of the monitor."""
    names: tuple[str, ...] = read.take(key, texts, ())
    known = frozenset(fields)
    for name in names if fields else ():
        if name not in known:
            read.refuse(f"no field {name!r}{nearest(name, fields)}", key)
    return names


def _take_channels(read: Reading, alerts: AlertSettings) -> tuple[str, ...]:
    """Take the notification channels, each of which config.toml must have; warn of a level that leaves items out."""
    names: tuple[str, ...] = read.take("to", CHANNEL_NAMES, ())
    for name in names:
        channel = alerts.channels.get(name)
        if name not in alerts.names:
            read.refuse(f'no channel "{name}"{nearest(name, alerts.names)}', "to")
        elif channel is not None and channel.level is not Level.INFO:
            read.doubt(f'the channel "{name}" takes {channel.level.value} and above: items are info', "to")
    return names


def _take_proxies(read: Reading) -> Proxies | None:
    table = read.below("proxy")
    enabled = table.take("enabled", boolean, True)
    rotation = table.take("rotate", one_of(Rotation), Rotation.ROUND_ROBIN)
    urls: tuple[str, ...] = table.take("urls", _PROXY_URLS, ())
    if not isinstance(read.raw("proxy"), Mapping) or not enabled:
        return None
    table.require("urls")
    return Proxies(urls=urls, rotation=rotation)


def _take_webhook(read: Reading) -> Webhook | None:
    table = read.below("webhook")
    enabled = table.take("enabled", boolean, True)
    url = table.take("url", _WEB_URL, "")
    sent: tuple[tuple[str, str], ...] = table.take("headers", headers, ())
    secret = table.take("secret", secret_place, "")
    if not isinstance(read.raw("webhook"), Mapping) or not enabled:
        return None
    table.require("url")
    return Webhook(url=url, headers=sent, secret=secret)


def _take_notification(read: Reading) -> Notification | None:
    """Take the settings of the desktop notification, which is shown unless it is switched off."""
    enabled = read.take("enabled", boolean, True)
    notification = Notification(
        title=read.take("title", text, None),
        body=read.take("body", text, None),
        timeout_ms=read.take("timeout", whole(0, DAY_MS), None),
    )
    return notification if enabled else None


@shaped(NOT_BLANK)
def _selector(value: object) -> str:
    selector = text(value).strip()
    if not selector:
        raise ValueError("can't be blank")
    return selector


def _several(value: object, what: str, schemes: Collection[str]) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise wrong(f"a list, each item {what}", value)
    if not value:
        raise ValueError(f"can't be an empty list: expected at least {what}")
    return tuple(absolute_url(item, schemes) for item in value)


def absolute_url(value: object, schemes: Collection[str]) -> str:
    """Check that an address is absolute and has one of these schemes, or any when none is given; raise ValueError."""
    url = one_line(value).strip()
    shown = url if len(url) <= 80 else f"{url[:77]}..."
    try:
        check_authority(url)
        parts = urlsplit(url)
        has_host = bool(parts.hostname) and parts.port != 0
    except ValueError as error:
        raise ValueError(f"{shown!r} is no URL: {error}") from None
    scheme = parts.scheme if _SCHEME.match(url) else ""
    if not scheme:
        raise ValueError(f"expected an absolute URL such as https://example.com/page, not {shown!r}")
    if schemes and scheme not in schemes:
        raise ValueError(f"expected a URL that begins with {choice([f'{each}://' for each in schemes])}, not {shown!r}")
    if not has_host and (schemes or scheme in WEB or not parts.path):
        raise ValueError(f"{shown!r} names no host")
    return url


@shaped(list_of(_FIELD, minItems=1))
def item_fields(value: object) -> tuple[Field, ...]:
    if not isinstance(value, list):
        raise wrong(f"a list, each item {_FIELD_EXPECTED}", value)
    if not value:
        raise ValueError("can't be an empty list: a monitor has at least one field")
    fields = tuple(read_field(item) for item in value)
    names: set[str] = set()
    for field in fields:
        if field.name in names:
            raise ValueError(f"two fields are called {field.name!r}")
        names.add(field.name)
    return fields


def read_field(value: object) -> Field:
    """Read one field of a monitor; raise ValueError with what was expected."""
    if isinstance(value, str):
        name, _, rest = value.partition(":")
        split = _ATTRIBUTE.fullmatch(rest)  # a selector may have an `@` of its own
        selector, attribute = split.groups() if split else (rest, "text")
    elif isinstance(value, Mapping):
        attribute = text(value.get("att", "text")).strip()
        name, selector = text(value.get("name", "")), text(value.get("selector", ""))
    else:
        raise wrong(_FIELD_EXPECTED, value)
    if not name.strip():
        raise ValueError(f"a field has no name: expected {_FIELD_EXPECTED}")
    is_text = attribute in ("", "text")
    return Field(name=name.strip(), selector=selector.strip(), attribute=None if is_text else attribute)


@shaped(list_of(NOT_BLANK), list)
def _keywords(value: object) -> tuple[str, ...]:
    words = texts(value)
    if not all(word.strip() for word in words):
        raise ValueError("a keyword can't be blank: every item would have it")
    return words


def _show_statuses(ranges: tuple[tuple[int, int], ...]) -> object:
    shown = [first if first == last else f"{first}-{last}" for first, last in ranges]
    return shown[0] if len(shown) == 1 else shown


@shaped(one_or_many(_STATUS), _show_statuses)
def _statuses(value: object) -> tuple[tuple[int, int], ...]:
    """Read a status, a range of them such as "200-299", or a list of both."""
    given = value if isinstance(value, list) else [value]
    if not given:
        raise ValueError("can't be an empty list: no answer would be as expected")
    return tuple(_status_range(each) for each in given)


def _status_range(value: object) -> tuple[int, int]:
    if isinstance(value, int) and not isinstance(value, bool) and 100 <= value <= 599:
        return value, value
    found = _STATUSES.fullmatch(value) if isinstance(value, str) else None
    if found is None or int(found[1]) > int(found[2]):
        raise wrong('an HTTP status such as 404, a range such as "200-299", or a list of these', value)
    return int(found[1]), int(found[2])
