"""Store the items that are new, and announce them: before_notify and before_webhook, the notification and the webhook.

Both messages are put in the outbox, in one transaction; the cycle does not wait for their delivery.  A new record is
marked as pending from the transaction that stores it until its messages are in the outbox.  When the daemon dies or the
cycle fails in between, the record stays pending, and the job's next cycle announces it together with its own.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from hashlib import blake2b
from zoneinfo import ZoneInfo

import msgspec
import structlog

from spyweb.errors import FetchError, NotPermitted, OpError, StoreError
from spyweb.model import JobId, Notification, Webhook
from spyweb.monitor.context import CycleContext, CycleFailed, in_one_step
from spyweb.monitor.items import Item, items_to_lua
from spyweb.ops.arguments import read_text
from spyweb.ops.network.request import parse_url
from spyweb.outbox.send import desktop_message, webhook_message
from spyweb.store.model.messages import NewMessage
from spyweb.store.model.records import NewRecord, Record
from spyweb.store.sqlite.records import Records

log = structlog.get_logger()

HASH_BYTES = 16
AT_ONCE = 200  # items stored in one transaction, which all others' writes wait for
MOST = 1_000  # records read at once
TITLE = "{job_name}: {item_count} new"
MOST_ITEMS = 10  # in one notification: a desktop shows a few lines

_TAG = re.compile(r"\{([^{}\n]+)\}")

Messages = dict[str, NewMessage]  # by stage
StoredItem = tuple[Item, int]  # and the timestamp_ns of its record


async def keep(context: CycleContext, items: Sequence[Item]) -> list[StoredItem]:
    """Store the new items and return them in order; the next cycle stores the rest of a cycle that ends halfway."""
    context.new = 0
    if not items:
        return []
    job, url = context.version.spec.id, context.page_url
    new: list[StoredItem] = []
    try:
        with context.telemetry.timed("store"):
            for start in range(0, len(items), AT_ONCE):
                some = items[start : start + AT_ONCE]
                records = [
                    NewRecord(
                        hash=hash_of(item.fields, context.version.monitor.hash_fields),
                        fields=item.fields,
                        matches=item.matches,
                        url=url,
                    )
                    for item in some
                ]
                stored = await context.services.records.add(job, records, owed=context.announces)
                new += [(item, at) for item, at in zip(some, stored, strict=True) if at is not None]
    except StoreError as error:
        raise CycleFailed(f"not stored: {error}") from error
    finally:
        context.new = len(new)
    if new:
        log.info("new items", job=job, url=url, new=len(new), of=len(items))
    return new


def hash_of(fields: Mapping[str, str], names: Sequence[str]) -> bytes:
    """Hash the texts with these names; all texts where there are no such names, or theirs are empty."""
    chosen = [(name, text) for name in names if (text := fields.get(name))]
    return blake2b(msgspec.msgpack.encode(chosen or sorted(fields.items())), digest_size=HASH_BYTES).digest()


@dataclass(slots=True)
class UnannouncedRecords:
    """Finds the records of one job that have not been announced yet."""

    job: JobId
    records: Records
    _may_be_more: bool = True  # an earlier daemon may have left some
    _at_risk: int = 0  # cycles that hold new items
    _reading: asyncio.Lock = field(default_factory=asyncio.Lock)

    @asynccontextmanager
    async def at_risk(self) -> AsyncIterator[Sequence[Record]]:
        """Count a cycle that has items to announce, until it ends; yield the records that earlier cycles left."""
        left: Sequence[Record] = ()
        async with self._reading:
            if self._may_be_more and not self._at_risk:  # else the items that other cycles hold would be among them
                left = await self._read()
        self._at_risk += 1
        try:
            yield left
        except BaseException:
            self._may_be_more = True
            raise
        finally:
            self._at_risk -= 1

    async def _read(self) -> Sequence[Record]:
        try:
            left = await self.records.owed(self.job, MOST)
        except StoreError as error:
            log.error("records to announce could not be read yet", job=self.job, reason=str(error))
            return ()
        self._may_be_more = len(left) == MOST
        return left


async def announce(context: CycleContext, left: Sequence[Record], new: Sequence[StoredItem]) -> None:
    """Announce the new items, and with them those that earlier cycles have left."""
    items = [*(Item(record.fields, record.matches, is_searched=True) for record in left), *(item for item, _ in new)]
    if not left and not (new and context.announces):
        return
    messages = await _messages(context, items)
    owed = [record.timestamp_ns for record in left] + [at_ns for _, at_ns in new]
    with ExitStack() as stages:
        for stage in messages:
            stages.enter_context(context.telemetry.timed(stage))
        try:  # the same transaction marks the items as announced
            await context.services.outbox.add(list(messages.values()), settles=owed)
        except StoreError as error:
            raise CycleFailed(f"{' and '.join(messages) or 'announcing'}: not put in the outbox: {error}") from error


async def _messages(context: CycleContext, new: Sequence[Item]) -> Messages:
    """Make the messages.  Both hooks are called even without a webhook or notification: they may send by themselves."""
    read = partial(context.version.reader.read_all, given=new)
    shown = await context.ask_about_items("before_notify", new, read)
    name, count = context.version.spec.name, len(new)
    payload = await context.ask(
        "before_webhook",
        lambda: {"job_name": name, "item_count": count, "items": items_to_lua(new)},
        in_one_step(read_text),
    )
    messages: Messages = {}
    items = new if shown.value is None else shown.value
    await context.search(items)
    if context.version.monitor.notification and not shown.is_nothing and items:
        try:
            context.host.permit("notify", "notify")
        except OpError as error:
            raise CycleFailed(str(error)) from error
        messages["notify"] = _notification(context, context.version.monitor.notification, items)
    if context.version.monitor.webhook and not payload.is_nothing:
        _check_webhook(context, context.version.monitor.webhook)
        body = default_payload(name, new) if payload.value is None else payload.value
        messages["webhook"] = webhook_message(context.version.spec.id, context.version.monitor.webhook, body)
    return messages


def _check_webhook(context: CycleContext, webhook: Webhook) -> None:
    """Check that the policy permits the webhook's host.  Raises CycleFailed: the items stay pending until it does."""
    gate = context.host.gate("webhook")
    if gate is None:
        return
    try:
        url = parse_url(webhook.url.encode("utf-8", "replace"))
        gate.check_request(url, None, dict(webhook.headers).get("Host"))
    except NotPermitted as error:
        raise CycleFailed(str(error)) from error
    except FetchError:
        return  # no address: the outbox keeps the message and reports it


def _notification(context: CycleContext, notification: Notification, items: Sequence[Item]) -> NewMessage:
    names, services = context.version.reader.names, context.services
    tags = {
        "job_name": context.version.spec.name,
        "url": context.page_url,
        "item_count": str(len(items)),
        "timestamp": moment(services.clock.now_ms(), services.timezone),
    }
    title, body = title_of(notification, tags, names, items), body_of(notification, tags, names, items)
    return desktop_message(context.version.spec.id, title, body, notification.timeout_ms)


# Texts


def title_of(notification: Notification, tags: Mapping[str, str], names: Sequence[str], items: Sequence[Item]) -> str:
    """Fill the title with the fields of the first item and the matches of all."""
    template = TITLE if notification.title is None else notification.title
    matches = list(dict.fromkeys(word for item in items for word in item.matches))
    return fill(template, {**tags, **_tags(names, items[0].fields, matches)})


def body_of(notification: Notification, tags: Mapping[str, str], names: Sequence[str], items: Sequence[Item]) -> str:
    template = notification.body
    if template is None:
        template = f"{{{names[0]}}}" if names else "{url}"
    shown = [fill(template, {**tags, **_tags(names, item.fields, item.matches)}) for item in items[:MOST_ITEMS]]
    more = len(items) - len(shown)
    return "\n".join([*(text.strip("\n") for text in shown), *([f"… and {more} more"] if more else [])])


def _tags(names: Sequence[str], fields: Mapping[str, str], matches: Sequence[str]) -> dict[str, str]:
    """Return the tags of an item; a field wins over a tag of the same name, such as `url`."""
    return {"matches": ", ".join(matches), "match_count": str(len(matches)), **dict.fromkeys(names, ""), **fields}


def moment(at_ms: int, timezone: str) -> str:
    return datetime.fromtimestamp(at_ms // 1000, tz=UTC).astimezone(ZoneInfo(timezone)).isoformat()


def fill(template: str, tags: Mapping[str, str]) -> str:
    """Fill all tags in one pass, so that text of a page is never read as a tag; leave unknown tags as they are."""
    return _TAG.sub(lambda found: tags.get(found[1], found[0]), template)


def default_payload(job_name: str, items: Sequence[Item]) -> bytes:
    """Make the JSON for a webhook where no hook made another."""
    flat = [{**item.fields, "keywords": item.matches} for item in items]
    return msgspec.json.encode({"job_name": job_name, "item_count": len(items), "items": flat})
