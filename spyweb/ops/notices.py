"""The table form of `notify`: a script sends a message by a notification channel.

The fate of a notice is committed before the script goes on: it is in the outbox, or counted as one below the
channel's level or repeated.
"""

from __future__ import annotations

from collections.abc import Mapping

from spyweb.errors import StoreError
from spyweb.incidents.policy import Level
from spyweb.lua.session import Results
from spyweb.ops.arguments import Mismatch, needed_text_in, text_in, type_name
from spyweb.ops.notify_desktop import LONGEST_BODY, LONGEST_TITLE, plain
from spyweb.ops.world import Call
from spyweb.settings.reading import nearest
from spyweb.store.model.messages import Notice, NoticeFate

FIELDS = ("channel", "level", "title", "body", "key")
LONGEST_NAME = 40  # characters of the name of a channel
LONGEST_KEY = 200  # bytes


async def tell(call: Call, fields: Mapping[object, object]) -> Results:
    """Queue a notice; return true and its fate, or nil and why it can't be sent.  Raises Mismatch."""
    for field in fields:
        given = field.decode("utf-8", "replace") if isinstance(field, bytes) else str(field)
        if given not in FIELDS:
            raise Mismatch(f"no field '{given[:LONGEST_NAME]}'{nearest(given, FIELDS)}")
    name = _cut(needed_text_in(fields, "channel"), LONGEST_NAME)
    level = _level(fields)
    title = " ".join(_cut(needed_text_in(fields, "title"), LONGEST_TITLE).split())
    body, key = _cut(text_in(fields, "body") or b"", LONGEST_BODY), text_in(fields, "key") or b""
    if not title:
        raise Mismatch("field 'title': it is blank")
    if len(key) > LONGEST_KEY:
        raise Mismatch(f"field 'key': at most {LONGEST_KEY} bytes expected, got {len(key)}")
    channels, now_ms = call.world.channels, call.world.clock.now_ms()
    channel = channels.find(name, call.job, now_ms)
    if channel is None:
        return None, f'there is no notification channel "{name}"{nearest(name, channels.names())}'
    if level.rank < channel.level.rank:
        return True, NoticeFate.BELOW.value
    notice = Notice(
        job=call.job,
        run=call.run if call.is_recorded else None,
        channel=name,
        level=level,
        title=title,
        text=body,
        key=key,
        day=channels.day(now_ms),
        held_until_ms=None if level is Level.CRITICAL else channel.quiet_until_ms,
    )
    try:
        fate = await call.world.store.outbox.notify(notice)
    except StoreError as error:
        return None, f"not stored: {error}"
    return True, fate.value


def channel_of(fields: Mapping[object, object]) -> str:
    """Return the channel that a call names; empty where `tell` will refuse it."""
    try:
        return _cut(text_in(fields, "channel") or b"", LONGEST_NAME)
    except Mismatch:
        return ""


def _cut(text: bytes, longest: int) -> str:
    # No character has more than four bytes: a far too long text is not decoded in full.
    return plain(text[: 4 * longest + 4].decode("utf-8", "replace"), longest)


def _level(fields: Mapping[object, object]) -> Level:
    given = fields.get(b"level")
    if given is None:
        return Level.INFO
    try:
        return Level(given.decode() if isinstance(given, bytes) else "")
    except ValueError:
        shown = f'"{plain(given.decode("utf-8", "replace"), LONGEST_NAME)}"' if isinstance(given, bytes) else ""
        expected = '"info", "warning" or "critical" expected'
        raise Mismatch(f"field 'level': {expected}, got {shown or type_name(given)}") from None
