"""Make items, records and messages for tests."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import asdict, replace

from spyweb.model import JobId
from spyweb.store.model.messages import Channel, NewMessage, QueuedMessage, Target
from spyweb.store.model.records import NewRecord, Record
from spyweb.store.sqlite.store import Store
from tests.fakes.changes import PRICES
from tests.fakes.clock import START_MS

HOOK = Target(Channel.WEBHOOK, "http://hooks.example/a")
OTHER_HOOK = Target(Channel.WEBHOOK, "http://hooks.example/b")
DESKTOP = Target(Channel.DESKTOP, "")


def item(title: str, *, matches: Sequence[str] = (), url: str = "https://shop.example/", **fields: str) -> NewRecord:
    """Make what a monitor job found; two items with one title are the same."""
    return NewRecord(hash=title.encode(), fields={"title": title, **fields}, matches=matches, url=url)


def message(payload: str = "{}", target: Target = HOOK, job: JobId = PRICES) -> NewMessage:
    return NewMessage(job=job, target=target, payload=payload.encode(), headers=(("Authorization", "Bearer x"),))


def kept(new: NewMessage, **changes: object) -> QueuedMessage:
    """Make what the outbox has of a message."""
    found = QueuedMessage(**asdict(new), id=1, delivery="d1", created_ms=START_MS, next_ms=START_MS)
    return replace(found, **changes)


def titles(records: Sequence[Record]) -> list[str]:
    return [record.fields["title"] for record in records]


async def listed(store: Store, job: JobId | None = None, limit: int = 1_000) -> list[str]:
    """Return the titles of records, newest first."""
    return titles(await store.records.list(job, limit=limit))


async def next_payload(store: Store, now_ms: int, target: Target = HOOK) -> str | None:
    """Return the payload that is to be sent next."""
    found = await store.outbox.next(target, now_ms)
    return found.payload.decode() if found else None
