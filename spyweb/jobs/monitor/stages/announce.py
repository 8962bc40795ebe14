"""What is new goes out: before_notify and before_webhook, then the notification and the webhook.

Both are put in the outbox; whether they arrive does not hold the cycle up.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from spyweb.errors import StoreError
from spyweb.jobs.monitor.course import Course, CycleFailed
from spyweb.jobs.monitor.hooks import NOTHING
from spyweb.jobs.monitor.rules.items import Item, items_to_lua
from spyweb.jobs.monitor.rules.texts import Occasion, body_of, default_payload, title_of
from spyweb.jobs.outbox import desktop_message, webhook_message
from spyweb.model import Notification
from spyweb.ops.arguments import read_text
from spyweb.store.protocol import NewMessage


async def announce(course: Course, new: Sequence[Item]) -> None:
    """Both hooks are asked, whether or not the settings let anything be sent: they may have ways of their own."""
    if not new:
        return
    read = partial(course.reader.read_all, told=new)
    shown = await course.ask("before_notify", partial(items_to_lua, new), read)
    payload = await course.ask("before_webhook", partial(_payload, course, new), read_text)
    if course.monitor.notification and shown is not NOTHING:
        await _notify(course, course.monitor.notification, shown if isinstance(shown, list) else new)
    if course.monitor.webhook and payload is not NOTHING:
        body = payload if isinstance(payload, bytes) else default_payload(course.spec.name, new)
        await _send(course, "webhook", webhook_message(course.spec.id, course.monitor.webhook, body))


def _payload(course: Course, new: Sequence[Item]) -> dict[str, object]:
    return {"job_name": course.spec.name, "item_count": len(new), "items": items_to_lua(new)}


async def _notify(course: Course, notification: Notification, items: Sequence[Item]) -> None:
    if not items:
        return
    about = Occasion(
        job_name=course.spec.name,
        url=course.page_url,
        at_ms=course.means.clock.now_ms(),
        timezone=course.means.timezone,
        names=course.reader.names,
        items=items,
    )
    title, body = title_of(notification, about), body_of(notification, about)
    await _send(course, "notify", desktop_message(course.spec.id, title, body, notification.timeout_ms))


async def _send(course: Course, stage: str, message: NewMessage) -> None:
    try:
        with course.telemetry.timed(stage):
            await course.means.outbox.add([message])
    except StoreError as error:
        raise CycleFailed(f"{stage}: not put in the outbox: {error}") from error
