"""Store the items that are new, and define what makes an item the same as an earlier one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b

import msgspec
import structlog
from msgspec import Struct

from spyweb.errors import StoreError
from spyweb.monitor.context import CycleContext, CycleFailed
from spyweb.monitor.items import Item
from spyweb.store.model.records import NewRecord

log = structlog.get_logger()

HASH_BYTES = 16
AT_ONCE = 200  # items stored in one transaction, which all others' writes wait for


class StoredItem(Struct, frozen=True):
    """An item that was new and is stored."""

    item: Item
    timestamp_ns: int  # of its record


async def keep(context: CycleContext, items: Sequence[Item]) -> list[StoredItem]:
    """Store the items that are new, and return them in their order.

    Of a large page some may be stored and others not where a cycle ends halfway: then these are new to the next one.
    """
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
                new += [StoredItem(item, at) for item, at in zip(some, stored, strict=True) if at is not None]
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
