"""The frame of every page: navigation, head and foot.  Pure, and cheap to import."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote, urlencode

from msgspec import Struct, field

from spyweb.web.pages.words import Moments


class NavEntry(Struct, frozen=True):
    """An entry of the navigation."""

    name: str
    path: str  # without the slash that it begins with
    words: str


BAR = (
    NavEntry("jobs", "", "Jobs"),
    NavEntry("incidents", "incidents", "Incidents"),
    NavEntry("when", "when", "Schedule"),
    NavEntry("records", "records", "Records"),
    NavEntry("state", "state", "State"),
    NavEntry("events", "events", "Events"),
    NavEntry("outbox", "outbox", "Outbox"),
    NavEntry("health", "health", "Health"),
    NavEntry("settings", "channels", "Settings"),
)
SETTINGS = (
    NavEntry("channels", "channels", "Channels"),
    NavEntry("maintenance", "maintenance", "Maintenance"),
    NavEntry("keys", "keys", "Keys"),
    NavEntry("nodes", "nodes", "Nodes"),
)
API_DOCS = "/api/docs"


class PageFrame(Struct, frozen=True, kw_only=True):
    """The frame of a page: its navigation, head and foot."""

    moments: Moments
    host: str = ""
    version: str = ""
    started: int | None = None  # the run that a button has started
    here: str = ""  # the address of this page, for forms that come back to it
    api: str = API_DOCS
    place: str = ""  # the current entry of the navigation
    state: str = "ok"  # "ok", "warn" or "bad": the icon
    counts: Mapping[str, int] = field(default_factory=dict)  # at entries of the navigation: what needs attention
    theme: str = ""  # "light", "dark"; empty: as the system has it
    is_known: bool = True  # the client may see more than the sign-in form
    has_nodes: bool = False  # this daemon is one of a cluster
    sees_all: bool = True  # the viewer is not limited to some jobs
    who: str = ""  # the key of this session; empty: no sign-in is needed
    may: frozenset[str] = frozenset()  # the rights of the viewer: there are no buttons for other actions
    nonce: str = ""  # of the scripts that may run
    live: str = ""  # the mark of this page; empty: it is not live


def to(*parts: object) -> str:
    """Return the address of a page, each part of it percent-encoded."""
    return "/" + "/".join(quote(str(part), safe="") for part in parts)


def with_query(path: str, given: Mapping[str, object]) -> str:
    """Return an address with parameters, which may be any bytes; empty ones are left out."""
    query = urlencode(
        {name: value for name, value in given.items() if value}, errors="surrogateescape", quote_via=quote, safe=""
    )
    return f"{path}?{query}" if query else path


STARTED = "started"  # a parameter of every page


def with_started(address: str, run: int | None = None) -> str:
    """Return an address that shows a started run, and no earlier one."""
    path, _, query = address.partition("?")
    kept = [each for each in query.split("&") if each and not each.startswith(f"{STARTED}=")]
    query = "&".join(kept if run is None else [*kept, f"{STARTED}={run}"])
    return f"{path}?{query}" if query else path


class Link(Struct, frozen=True):
    """An address with its text."""

    words: str
    href: str


class Chip(Struct, frozen=True, kw_only=True):
    """One of several links, of which one is current."""

    words: str
    href: str
    value: str = ""
    is_current: bool = False
    count: int | None = None
