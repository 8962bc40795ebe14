"""Declaring pages and actions, and the addresses in them."""

from __future__ import annotations

import pytest
from msgspec import Struct
from msgspec.structs import replace

from spyweb.incidents.policy import AlertPolicy
from spyweb.incidents.truth import SignSeen
from spyweb.store.model.incidents import SubjectEvent
from spyweb.web.access.principal import LOOPBACK
from tests.fakes.clock import settle
from tests.fakes.daemon_service import BACKUP, FakeDaemonService
from tests.fakes.dashboard import (
    asked_of,
    make_dashboard_service,
    page_of,
    three_rows,
)
from tests.fakes.incidents import fail


class Query(Struct, frozen=True):
    """A list as any page may have one."""

    q: str = ""
    key: bytes | None = None
    page: int = 1
    before: int = 0


@pytest.mark.parametrize(
    ("query", "changes", "address"),
    [
        (Query(), {}, "/list"),
        (Query(q="a&ü"), {}, "/list?q=a%26%C3%BC"),
        (Query(q="a", page=1, before=7), {}, "/list?q=a"),
        (Query(q="a", page=2), {"before": 7}, "/list?q=a&page=2&before=7"),
        (Query(q="a", page=2), {"q": "", "page": 1}, "/list"),
        (Query(key=b"\xff"), {"q": "\udcff"}, "/list?q=%FF&key=%FF"),
    ],
)
def test_an_address_has_what_differs_from_the_usual(query: Query, changes: dict[str, object], address: str) -> None:
    assert asked_of(make_dashboard_service(), path="/list?since=1").address(query, **changes) == address


def test_a_list_leads_to_where_it_goes_on_and_a_chip_to_another() -> None:
    asked = asked_of(make_dashboard_service(), path="/list")
    assert asked.places(Query(q="a", before=9), 3) == {
        "older": "/list?q=a&before=3",
        "newest": "/list?q=a",
        "is_older": True,
    }
    assert asked.places(Query(), 0) == {"older": "", "newest": "/list", "is_older": False}
    chips = asked.chips(Query(q="a", before=9), "q", [("", "All"), ("a", "A")], {"a": 2})
    assert [(chip.words, chip.href, chip.is_current, chip.count) for chip in chips] == [
        ("All", "/list", False, 0),
        ("A", "/list?q=a", True, 2),
    ]


async def with_incidents(service: FakeDaemonService) -> FakeDaemonService:
    """One of backup, and one of a channel."""
    await fail(service.stored_incidents, BACKUP)
    seen = SubjectEvent(subject="channel:ops", event=SignSeen("down", "x"), policy=AlertPolicy(), at_ms=0)
    await service.stored_incidents.note([seen])
    return service


async def test_open_incidents_are_counted_as_somebody_may_see_them() -> None:
    service = await with_incidents(make_dashboard_service())
    everything = await service.outlook(LOOPBACK)
    assert (everything.counts["incidents"], everything.counts["jobs"], everything.state) == (2, 2, "bad")
    some = await service.outlook(replace(LOOPBACK, jobs=("backup",)))
    assert [each.subject for each in some.incidents] == ["job:backup"]
    assert (await service.outlook(replace(LOOPBACK, jobs=("prices",)))).counts["incidents"] == 0


async def test_what_is_open_is_no_good_news_though_all_jobs_are_well() -> None:
    service = make_dashboard_service([row for row in three_rows() if row.job.id == "prices"])
    assert (await service.outlook(LOOPBACK)).state == "ok"
    await with_incidents(service)
    await settle()
    assert (await service.outlook(LOOPBACK)).state == "warn"


async def test_the_first_page_says_what_is_open_and_since_when() -> None:
    service = make_dashboard_service()
    assert "incident" not in (await page_of("/", service)).partition("<main")[2].partition("</main")[0]
    await fail(service.stored_incidents, BACKUP)
    page = await page_of("/", service)
    assert '<a href="/incidents/1">Incident 1 is open</a>: <bdi>Backup</bdi> failing since <strong><time' in page
    await with_incidents(service)
    page = await page_of("/", service)
    assert '<a href="/incidents">2\N{NO-BREAK SPACE}incidents are open</a>, the oldest since' in page
    assert '<a href="/incidents/2"><bdi>Channel ops</bdi></a>' in page
