"""Make the texts of a notification and the payload of a webhook.  Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import msgspec

from spyweb.model import Notification
from spyweb.monitor.rules.items import Item

TITLE = "{job_name}: {item_count} new"
MOST_ITEMS = 10  # in one notification: a desktop shows a few lines

_TAG = re.compile(r"\{([^{}\n]+)\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class NotificationSubject:
    """The subject of a notification, for the tags in its texts."""

    job_name: str
    url: str
    at_ms: int
    timezone: str
    names: tuple[str, ...]  # of the settings' fields
    items: Sequence[Item]


def title_of(notification: Notification, about: NotificationSubject) -> str:
    """Fill the title with the fields of the first item and the matches of all."""
    template = TITLE if notification.title is None else notification.title
    matches = list(dict.fromkeys(word for item in about.items for word in item.matches))
    first = about.items[0].fields if about.items else {}
    return fill(template, _tags(about, first, matches))


def body_of(notification: Notification, about: NotificationSubject) -> str:
    """Repeat the text for each item."""
    template = _default_body(about.names) if notification.body is None else notification.body
    shown = [fill(template, _tags(about, item.fields, item.matches)) for item in about.items[:MOST_ITEMS]]
    more = len(about.items) - len(shown)
    return "\n".join([*(text.strip("\n") for text in shown), *([f"… and {more} more"] if more else [])])


def _default_body(names: Sequence[str]) -> str:
    return f"{{{names[0]}}}" if names else "{url}"


def _tags(about: NotificationSubject, fields: Mapping[str, str], matches: Sequence[str]) -> dict[str, str]:
    """Return the text of each tag; a field wins over a tag of its name, since who extracts a `url` wants that one."""
    return {
        "job_name": about.job_name,
        "url": about.url,
        "item_count": str(len(about.items)),
        "timestamp": moment(about.at_ms, about.timezone),
        "matches": ", ".join(matches),
        "match_count": str(len(matches)),
        **dict.fromkeys(about.names, ""),
        **fields,
    }


def moment(at_ms: int, timezone: str) -> str:
    return datetime.fromtimestamp(at_ms // 1000, tz=UTC).astimezone(ZoneInfo(timezone)).isoformat()


def fill(template: str, tags: Mapping[str, str]) -> str:
    """Fill all tags in one pass, so that text of a page is never read as a tag; leave unknown tags as they are."""
    return _TAG.sub(lambda found: tags.get(found[1], found[0]), template)


def default_payload(job_name: str, items: Sequence[Item]) -> bytes:
    """Make the JSON for a webhook where no hook made another."""
    flat = [{**item.fields, "keywords": item.matches} for item in items]
    return msgspec.json.encode({"job_name": job_name, "item_count": len(items), "items": flat})


def fields_json(items: Sequence[Item]) -> bytes:
    """Show the extracted fields as JSON, for a person who writes selectors."""
    return msgspec.json.format(msgspec.json.encode([item.fields for item in items]), indent=2) + b"\n"
