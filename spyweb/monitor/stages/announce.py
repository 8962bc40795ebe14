"""Announce what is new: before_notify and before_webhook, then the notification and the webhook.

Both are put in the outbox, in one transaction; whether they arrive does not hold the cycle up.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial

from spyweb.errors import FetchError, NotPermitted, OpError, StoreError
from spyweb.model import Notification, Webhook
from spyweb.monitor.context import CycleContext, CycleFailed, in_one_step
from spyweb.monitor.hooks import NOTHING
from spyweb.monitor.rules.items import Item, items_to_lua
from spyweb.monitor.rules.texts import NotificationSubject, body_of, default_payload, title_of
from spyweb.monitor.stages.keep import StoredItem
from spyweb.ops.arguments import read_text
from spyweb.ops.network.request import parse_url
from spyweb.outbox.messages import desktop_message, webhook_message
from spyweb.store.outbox_protocol import NewMessage

Messages = dict[str, NewMessage]  # by stage


async def announce(context: CycleContext, new: Sequence[StoredItem]) -> None:
    """Announce the new items, and with them those that earlier cycles have left."""
    left = context.unannounced.take()
    items = [*(Item(record.fields, record.matches, is_searched=True) for record in left), *(each.item for each in new)]
    if left or (new and context.announces):
        messages = await _messages(context, items)
        owed = [record.timestamp_ns for record in left] + [each.timestamp_ns for each in new]
        await _send(context, messages, owed)


async def _messages(context: CycleContext, new: Sequence[Item]) -> Messages:
    """Make the messages; both hooks are called even where the settings send nothing: they may do so themselves."""
    read = partial(context.reader.read_all, given=new)
    shown = await context.ask_about_items("before_notify", new, read)
    payload = await context.ask("before_webhook", partial(_payload, context, new), in_one_step(read_text))
    messages: Messages = {}
    items = shown if isinstance(shown, list) else new
    await context.search(items)
    if context.monitor.notification and shown is not NOTHING and items:
        _check_notification(context)
        messages["notify"] = _notification(context, context.monitor.notification, items)
    if context.monitor.webhook and payload is not NOTHING:
        _check_webhook(context, context.monitor.webhook)
        body = payload if isinstance(payload, bytes) else default_payload(context.spec.name, new)
        messages["webhook"] = webhook_message(context.spec.id, context.monitor.webhook, body)
    return messages


def _check_notification(context: CycleContext) -> None:
    """Ask for the notification.  Raises CycleFailed, as for a webhook."""
    try:
        context.permit("notify", "notify")
    except OpError as error:
        raise CycleFailed(str(error)) from error


def _check_webhook(context: CycleContext, webhook: Webhook) -> None:
    """Ask for the host of the webhook.  Raises CycleFailed: the items stay owed until it is permitted."""
    gate = context.gate("webhook")
    if gate is None:
        return
    try:
        url = parse_url(webhook.url.encode("utf-8", "replace"))
        gate.check_request(url, None, dict(webhook.headers).get("Host"))
    except NotPermitted as error:
        raise CycleFailed(str(error)) from error
    except FetchError:
        return  # no address: the outbox says so, and keeps the message


def _payload(context: CycleContext, new: Sequence[Item]) -> dict[str, object]:
    return {"job_name": context.spec.name, "item_count": len(new), "items": items_to_lua(new)}


def _notification(context: CycleContext, notification: Notification, items: Sequence[Item]) -> NewMessage:
    about = NotificationSubject(
        job_name=context.spec.name,
        url=context.page_url,
        at_ms=context.services.clock.now_ms(),
        timezone=context.services.timezone,
        names=context.reader.names,
        items=items,
    )
    title, body = title_of(notification, about), body_of(notification, about)
    return desktop_message(context.spec.id, title, body, notification.timeout_ms)


async def _send(context: CycleContext, messages: Messages, settles: Sequence[int]) -> None:
    """Add the messages to the outbox; the same transaction marks their items as announced."""
    with ExitStack() as stages:
        for stage in messages:
            stages.enter_context(context.telemetry.timed(stage))
        try:
            await context.services.outbox.add(list(messages.values()), settles=settles)
        except StoreError as error:
            raise CycleFailed(f"{' and '.join(messages) or 'announcing'}: not put in the outbox: {error}") from error
