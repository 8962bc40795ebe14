"""Store the items that are new or changed, and announce them: on the desktop, to notification channels, by the webhook.

All messages are put in the outbox, in one transaction; the cycle does not wait for their delivery.  A new record is
marked as pending from the transaction that stores it until its messages are in the outbox.  When the daemon dies or the
cycle fails in between, the record stays pending, and the job's next cycle announces it together with its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b

import msgspec
import structlog

from spyweb.errors import FetchError, NotPermitted, OpError, StoreError
from spyweb.incidents.policy import Level
from spyweb.model import FirstFind, JobId, Notification, Webhook
from spyweb.monitor.context import CycleContext, CycleFailed, in_one_step
from spyweb.monitor.expectations import expects
from spyweb.monitor.items import Item
from spyweb.monitor.texts import LONGEST_LINK, body_of, entry_of, link_of, moment, notice_of, title_of, webhook_payload
from spyweb.ops.arguments import read_text
from spyweb.ops.network.request import parse_url
from spyweb.ops.notify_desktop import LONGEST_BODY, LONGEST_TITLE, plain
from spyweb.outbox.send import desktop_message, webhook_message
from spyweb.store.model.messages import NewMessage, Notice
from spyweb.store.model.records import FirstCycle, NewRecord, Record
from spyweb.store.sqlite.records import Records

log = structlog.get_logger()

HASH_BYTES = 16
AT_ONCE = 200  # items stored in one transaction, which all others' writes wait for
MOST = 1_000  # records read at once
NO_FIELDS = ""  # the name under which the page, or a number, identifies an item without other fields

Messages = dict[str, NewMessage]  # by stage
Twins = dict[tuple[tuple[str, str], ...], dict[object, int]]


async def keep(context: CycleContext, items: Sequence[Item]) -> list[Record]:
    """Store the items that are new or changed, and return their records in order.

    The next cycle stores the rest of a cycle that ends halfway.
    """
    context.new = 0
    monitor, services = context.version.monitor, context.services
    is_silent = monitor.first is FirstFind.SILENT and bool(context.found)
    is_error_page = bool(monitor.track) and not expects(monitor, context.http_status)  # whose texts are no values
    if is_error_page or not (items or is_silent):
        return []
    job, url, mark = context.version.spec.id, context.page_url, hash_of({"first cycle": context.url}, ())
    kept: list[Record] = []
    twins: Twins = {}
    try:
        with context.telemetry.timed("store"):
            for start in range(0, len(items) or 1, AT_ONCE):
                new = [record_of(context, item, twins) for item in items[start : start + AT_ONCE]]
                first = FirstCycle(hash=mark, is_last=start + AT_ONCE >= len(items)) if is_silent else None
                stored = await services.records.add(job, new, owed=context.announces, first=first)
                kept += filter(None, stored)
    except StoreError as error:
        raise CycleFailed(f"not stored: {error}") from error
    finally:
        context.new, changed = len(kept), sum(bool(record.old) for record in kept)
        context.changed = changed if monitor.track else None
    if kept:
        log.info("new items", job=job, url=url, new=len(kept) - changed, changed=changed, of=len(items))
    return kept


def record_of(context: CycleContext, item: Item, twins: Twins) -> NewRecord:
    """Return the record of an item; `twins` numbers the items of a page that only tracked fields tell apart.

    Of these, equal ones are one item; values without any other text are distinguished by their order on their page.
    """
    monitor, tracked, former = context.version.monitor, None, b""
    item_hash = hash_of(item.fields, monitor.hash_fields)
    if monitor.track:
        tracked = {name: item.fields.get(name, "") for name in monitor.track}
        former = item_hash
        names = monitor.hash_fields or [name for name in item.fields if name not in tracked]
        texts = tuple((name, text) for name in names if (text := item.fields.get(name)))
        known = twins.setdefault(texts, {})
        number = known.setdefault(tuple(tracked.values()) if texts else len(known), len(known) + 1)
        item_hash = hash_of(dict(texts), names)  # with hash_fields as if nothing were tracked
        if number > 1 or not texts:
            item_hash = hash_of({**dict(texts), NO_FIELDS: f"{number} {'' if texts else context.url}"}, ())
    return NewRecord(
        hash=item_hash,
        fields=item.fields,
        matches=item.matches,
        url=context.page_url,
        tracked=tracked,
        former_hash=former,
    )


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


async def announce(context: CycleContext, left: Sequence[Record], new: Sequence[Record]) -> None:
    """Announce the pending records of this cycle and of earlier ones."""
    pending = [*left, *(record for record in new if record.is_pending)]
    if not pending:
        return
    items = [Item(each.fields, each.matches, each.old, each.url, is_searched=True) for each in pending]
    messages, notices = await _messages(context, items)
    stages = dict.fromkeys([*(["notify"] if notices else []), *messages])
    with ExitStack() as timed:
        for stage in stages:
            timed.enter_context(context.telemetry.timed(stage))
        try:  # the same transaction marks the records as announced
            await context.services.outbox.add(
                list(messages.values()), settles=[record.timestamp_ns for record in pending], notices=notices
            )
        except StoreError as error:
            raise CycleFailed(f"{' and '.join(stages) or 'announcing'}: not put in the outbox: {error}") from error


async def _messages(context: CycleContext, new: Sequence[Item]) -> tuple[Messages, Sequence[Notice]]:
    """Make the messages.  Both hooks are called even without a webhook or notification: they may send by themselves."""
    monitor, name = context.version.monitor, context.version.spec.name
    read = partial(context.version.reader.read_all, given=new)
    shown = await context.ask_about_items("before_notify", new, read)
    payload = await context.ask(
        "before_webhook",
        lambda: {
            "job_name": name,
            "item_count": len(new),
            "items": [{**item.lua_table, "entry": entry_of(item, context.page_url, monitor)} for item in new],
        },
        in_one_step(read_text),
    )
    messages: Messages = {}
    items = new if shown.value is None else shown.value
    await context.search(items)
    is_shown = bool(items) and not shown.is_nothing
    notices = _notices(context, items) if is_shown else ()
    if monitor.notification and is_shown:
        _permit(context, "notify")
        messages["notify"] = _notification(context, monitor.notification, items)
    if monitor.webhook and not payload.is_nothing:
        _check_webhook(context, monitor.webhook)
        body = webhook_payload(name, context.page_url, monitor, new) if payload.value is None else payload.value
        messages["webhook"] = webhook_message(context.version.spec.id, monitor.webhook, body)
    return messages, notices


def _notices(context: CycleContext, items: Sequence[Item]) -> list[Notice]:
    """Make the message for each notification channel that takes it.  Raises CycleFailed: the items stay pending."""
    monitor, spec, channels = context.version.monitor, context.version.spec, context.services.channels
    notices: list[Notice] = []
    for name in monitor.to:
        _permit(context, "to", name)
        channel = channels.find(name, spec.id, context.services.clock.now_ms())
        if channel is None:
            raise CycleFailed(f'to: config.toml has no channel "{name}" any more')
        if channel.level is not Level.INFO:  # `spyweb check` warns of it
            continue
        title, body = notice_of(spec.name, context.page_url, monitor, items)
        link = link_of(items[0], monitor) if len(items) == 1 else ""
        notices.append(
            Notice(
                job=spec.id,
                run=context.run,
                channel=name,
                level=Level.INFO,
                title=plain(title, LONGEST_TITLE),
                text=plain(body, LONGEST_BODY),
                link=link[:LONGEST_LINK],
                page_url=context.page_url[:LONGEST_LINK],
                held_until_ms=channel.quiet_until_ms,
            )
        )
    return notices


def _permit(context: CycleContext, key: str, *channel: str) -> None:
    """Check that the policy permits a notification.  Raises CycleFailed: the items stay pending until it does."""
    try:
        context.host.call.permit(key, "notify", *channel)
    except OpError as error:
        raise CycleFailed(str(error)) from error


def _check_webhook(context: CycleContext, webhook: Webhook) -> None:
    """Check that the policy permits the webhook's host.  Raises CycleFailed: the items stay pending until it does."""
    try:
        url = parse_url(webhook.url.encode("utf-8", "replace"))
        context.host.call.gate("webhook").check_request(url, None, dict(webhook.headers).get("Host"))
    except NotPermitted as error:
        raise CycleFailed(str(error)) from error
    except FetchError:
        return  # no address: the outbox keeps the message and reports it


def _notification(context: CycleContext, notification: Notification, items: Sequence[Item]) -> NewMessage:
    monitor, services = context.version.monitor, context.services
    tags = {
        "job_name": context.version.spec.name,
        "url": context.page_url,
        "item_count": str(len(items)),
        "timestamp": moment(services.clock.now_ms(), services.timezone),
    }
    title, body = title_of(notification, tags, monitor, items), body_of(notification, tags, monitor, items)
    return desktop_message(context.version.spec.id, title, body, notification.timeout_ms, services.node)
