"""The texts of messages about new and changed items: for the desktop, notification channels and webhooks.  Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import msgspec

from spyweb.model import Monitor, Notification
from spyweb.monitor.items import Item
from spyweb.words import cut

TITLE = "{job_name}: {item_count} new"
TRACKED_TITLE, TRACKED_BODY = "{job_name}: {changes}", "{change}"  # where fields are tracked
MOST_ITEMS = 10  # in one message
LONGEST_VALUE, LONGEST_LINK = 80, 500  # characters, in a line about an item
WEB = ("http://", "https://")  # no `javascript:` of a page becomes a link of a message
NOTHING = "\N{EN DASH}"  # in place of an empty text

_TAG = re.compile(r"\{([^{}\n]+)\}")


def title_of(notification: Notification, tags: Mapping[str, str], monitor: Monitor, items: Sequence[Item]) -> str:
    """Fill the title with the fields of the first item and the matches of all."""
    template = notification.title
    if template is None:
        template = TRACKED_TITLE if monitor.track else TITLE
    matches = list(dict.fromkeys(word for item in items for word in item.matches))
    return fill(template, {**tags, "changes": count_changes(items), **_tags(monitor, items[0], matches)})


def body_of(notification: Notification, tags: Mapping[str, str], monitor: Monitor, items: Sequence[Item]) -> str:
    template = notification.body
    if template is None:
        template = TRACKED_BODY if monitor.track else f"{{{monitor.fields[0].name}}}"
    shown = [fill(template, {**tags, **_tags(monitor, item, item.matches)}) for item in items[:MOST_ITEMS]]
    return "\n".join([*(text.strip("\n") for text in shown), *_more(items)])


def notice_of(name: str, page_url: str, monitor: Monitor, items: Sequence[Item]) -> tuple[str, str]:
    """Return title and body of the message to notification channels: of a single item the title says it all."""
    if len(items) == 1:
        line, link = describe(items[0], monitor), link_of(items[0], monitor)
        is_named = any(text and name not in monitor.track for name, text in items[0].fields.items())
        return (line if items[0].old and is_named else f"{name}: {line}"), link or items[0].url or page_url
    lines = []
    for item in items[:MOST_ITEMS]:
        link = link_of(item, monitor)[:LONGEST_LINK]
        lines += [describe(item, monitor), *([link] if link else [])]
    return f"{name}: {count_changes(items)}", "\n".join([*lines, *_more(items), page_url])


def describe(item: Item, monitor: Monitor) -> str:
    """Return one line about an item: `Lamp: price 30.99 € → 24.99 €`, or of a new one `Lamp: price 30.99 €`."""
    texts = {name: shorten(text) for name, text in item.fields.items()}
    label = next((text for name, text in texts.items() if text and name not in monitor.track), "")
    changes = [f"{name} {shorten(old) or NOTHING} → {texts.get(name) or NOTHING}" for name, old in item.old.items()]
    values = [f"{name} {texts[name]}" for name in monitor.track if texts.get(name)]
    return ": ".join(filter(None, (label, ", ".join(changes if item.old else values)))) or NOTHING


def shorten(text: str) -> str:
    return cut(" ".join(text[: 4 * LONGEST_VALUE].split()), LONGEST_VALUE)


def count_changes(items: Sequence[Item]) -> str:
    """Return `2 new, 1 changed`."""
    changed = sum(bool(item.old) for item in items)
    counts = ((len(items) - changed, "new"), (changed, "changed"))
    return ", ".join(f"{number:,} {word}" for number, word in counts if number)


def link_of(item: Item, monitor: Monitor) -> str:
    """Return the address of the item itself: its first field taken from `href` that leads to the web."""
    links = (item.fields.get(field.name, "") for field in monitor.fields if field.attribute == "href")
    return next((link for link in links if link.startswith(WEB)), "")


def webhook_payload(name: str, page_url: str, monitor: Monitor, items: Sequence[Item]) -> bytes:
    """Make the JSON for a webhook where no hook made another."""
    entries = []
    for item in items:
        fields = {"fields": item.fields} if monitor.track else item.fields
        entries.append({**entry_of(item, page_url, monitor), **fields, "keywords": item.matches})
    return msgspec.json.encode({"job_name": name, "item_count": len(items), "items": entries})


def entry_of(item: Item, page_url: str, monitor: Monitor) -> dict[str, object]:
    """Return what the JSON of a webhook has of an item beside its fields and keywords."""
    entry: dict[str, object] = {}
    if monitor.track:
        entry = {"change": "changed", "old": item.old} if item.old else {"change": "new"}
    link = link_of(item, monitor)
    return {**entry, "page_url": item.url or page_url, **({"link": link} if link else {})}


def _more(items: Sequence[Item]) -> list[str]:
    more = len(items) - MOST_ITEMS
    return [f"… and {more:,} more"] if more > 0 else []


def _tags(monitor: Monitor, item: Item, matches: Sequence[str]) -> dict[str, str]:
    """Return the tags of an item; a field wins over a tag of the same name, such as `url`."""
    names = (field.name for field in monitor.fields)
    about = {"matches": ", ".join(matches), "match_count": str(len(matches)), "change": describe(item, monitor)}
    return {**about, **dict.fromkeys(names, ""), **item.fields}


def moment(at_ms: int, timezone: str) -> str:
    return datetime.fromtimestamp(at_ms // 1000, tz=UTC).astimezone(ZoneInfo(timezone)).isoformat()


def fill(template: str, tags: Mapping[str, str]) -> str:
    """Fill all tags in one pass, so that text of a page is never read as a tag; leave unknown tags as they are."""
    return _TAG.sub(lambda found: tags.get(found[1], found[0]), template)
