"""The table form of `notify`: a script tells people by an alert channel.

Whatever becomes of a notice is committed before the script goes on: it is in the outbox, or noted as one that its
settings do not have told.
"""

from __future__ import annotations

from collections.abc import Mapping

from spyweb.errors import OpError, StoreError
from spyweb.incidents.policy import Level
from spyweb.lua.session import Results
from spyweb.ops.arguments import Mismatch, text_in, type_name
from spyweb.ops.notify_desktop import LONGEST_BODY, LONGEST_TITLE, plain
from spyweb.ops.world import Call
from spyweb.settings.reading import nearest
from spyweb.store.model.messages import Notice, NoticeFate

NOTIFY = "notify"
FIELDS = ("channel", "level", "title", "body", "key")
LONGEST_NAME = 40  # characters of the name of a channel
LONGEST_KEY = 200  # bytes


async def tell(call: Call, fields: Mapping[object, object]) -> Results:
    """Tell people; return true and what becomes of it, or nil and why it can't be told.  Raises OpError."""
    _refuse_unknown(fields)
    name = _text(fields, "channel", LONGEST_NAME, is_needed=True)
    level = _level(fields)
    title = " ".join(_text(fields, "title", LONGEST_TITLE, is_needed=True).split())
    body, key = _text(fields, "body", LONGEST_BODY), _key(fields)
    if not title:
        raise _bad("field 'title': it is blank")
    channels, now_ms = call.world.channels, call.world.clock.now_ms()
    channel = channels.find(name, call.job, now_ms)
    if channel is None:
        return None, f'there is no alert channel "{name}"{nearest(name, channels.names())}'
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
        fate = await call.world.store.notices.add(notice)
    except StoreError as error:
        return None, f"not stored: {error}"
    return True, fate.value


def channel_of(fields: Mapping[object, object]) -> str:
    """Return the channel that a call names; empty where `tell` will refuse it."""
    try:
        return _text(fields, "channel", LONGEST_NAME)
    except OpError:
        return ""


def _refuse_unknown(fields: Mapping[object, object]) -> None:
    for field in fields:
        name = field.decode("utf-8", "replace") if isinstance(field, bytes) else str(field)
        if name not in FIELDS:
            raise _bad(f"no field '{name[:LONGEST_NAME]}'{nearest(name, FIELDS)}")


def _text(fields: Mapping[object, object], name: str, longest: int, *, is_needed: bool = False) -> str:
    """Read a text, which is cut where it is too long."""
    try:
        text = text_in(fields, name)
    except Mismatch as mismatch:
        raise _bad(str(mismatch)) from None
    if text is None:
        if is_needed:
            raise _bad(f"field '{name}': string expected, got nil")
        return ""
    # No character has more than four bytes: what is far too long is not decoded.
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
        raise _bad(f"field 'level': {expected}, got {shown or type_name(given)}") from None


def _key(fields: Mapping[object, object]) -> bytes:
    try:
        key = text_in(fields, "key") or b""
    except Mismatch as mismatch:
        raise _bad(str(mismatch)) from None
    if len(key) > LONGEST_KEY:
        raise _bad(f"field 'key': at most {LONGEST_KEY} bytes expected, got {len(key)}")
    return key


def _bad(reason: str) -> OpError:
    return OpError(f"bad argument #1 to '{NOTIFY}' ({reason})")
