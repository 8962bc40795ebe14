"""What is new goes out: before_notify and before_webhook, then the notification and the webhook.

Both are put in the outbox, in one transaction; whether they arrive does not hold the cycle up.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial

from spyweb.errors import StoreError
from spyweb.model import Notification
from spyweb.monitor.course import Course, CycleFailed
from spyweb.monitor.hooks import NOTHING
from spyweb.monitor.rules.items import Item, items_to_lua
from spyweb.monitor.rules.texts import Occasion, body_of, default_payload, title_of
from spyweb.monitor.slices import at_once
from spyweb.monitor.stages.keep import New
from spyweb.ops.arguments import read_text
from spyweb.outbox.outbox import desktop_message, webhook_message
from spyweb.store.protocol import NewMessage

Messages = dict[str, NewMessage]  # by stage


async def announce(course: Course, new: Sequence[New]) -> None:
    """With it goes what earlier cycles have left to announce."""
    left = course.owed.take()
    items = [*(Item(record.fields, record.matches, is_searched=True) for record in left), *(each.item for each in new)]
    if left or (new and course.announces):
        messages = await _messages(course, items)
        owed = [record.timestamp_ns for record in left] + [each.timestamp_ns for each in new]
        await _send(course, messages, owed)


async def _messages(course: Course, new: Sequence[Item]) -> Messages:
    """Both hooks are asked, whether or not the settings let anything be sent: they may have ways of their own."""
    read = partial(course.reader.read_all, told=new)
    shown = await course.ask_about("before_notify", new, read)
    payload = await course.ask("before_webhook", partial(_payload, course, new), at_once(read_text))
    messages: Messages = {}
    items = shown if isinstance(shown, list) else new
    await course.search(items)
    if course.monitor.notification and shown is not NOTHING and items:
        messages["notify"] = _notification(course, course.monitor.notification, items)
    if course.monitor.webhook and payload is not NOTHING:
        body = payload if isinstance(payload, bytes) else default_payload(course.spec.name, new)
        messages["webhook"] = webhook_message(course.spec.id, course.monitor.webhook, body)
    return messages


def _payload(course: Course, new: Sequence[Item]) -> dict[str, object]:
    return {"job_name": course.spec.name, "item_count": len(new), "items": items_to_lua(new)}


def _notification(course: Course, notification: Notification, items: Sequence[Item]) -> NewMessage:
    about = Occasion(
        job_name=course.spec.name,
        url=course.page_url,
        at_ms=course.means.clock.now_ms(),
        timezone=course.means.timezone,
        names=course.reader.names,
        items=items,
    )
    title, body = title_of(notification, about), body_of(notification, about)
    return desktop_message(course.spec.id, title, body, notification.timeout_ms)


async def _send(course: Course, messages: Messages, settles: Sequence[int]) -> None:
    """All of it in one transaction, in which what is announced stops being owed."""
    with ExitStack() as stages:
        for stage in messages:
            stages.enter_context(course.telemetry.timed(stage))
        try:
            await course.means.outbox.add(list(messages.values()), settles=settles)
        except StoreError as error:
            raise CycleFailed(f"{' and '.join(messages) or 'announcing'}: not put in the outbox: {error}") from error
