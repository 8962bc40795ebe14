"""The view of a page by its parts."""

from __future__ import annotations

from collections.abc import Mapping

from spyweb.views.events import EventType
from spyweb.web.pages.page import Asked
from spyweb.web.pages.parts import EVERYWHERE, PagePart, PartsView
from tests.fakes.dashboard import asked_of, make_dashboard_service


def make_view(gathered: list[str], argument: str = "", anew: frozenset[str] = frozenset()) -> PartsView:
    async def gather(_asked: Asked) -> Mapping[str, object]:
        gathered.append("gathered")
        return {"title": "<b>"}

    own = {"title": PagePart(template="title.html", subjects=("outbox", "state:*"))}
    asked = asked_of(make_dashboard_service())
    return PartsView(name="one", asked=asked, argument=argument, own=own, gather=gather, anew=anew)


def test_a_part_depends_on_its_subjects_and_the_bar_on_jobs_and_health() -> None:
    view = make_view([], anew=frozenset({"jobs"}))
    assert view.parts("outbox") == view.parts("state:global") == ["title"]
    assert view.parts("job:prices") == view.parts("health") == list(EVERYWHERE)
    assert view.parts("audit") == []
    assert view.parts("jobs") is None


async def test_values_are_gathered_once_and_only_for_its_own_parts() -> None:
    gathered: list[str] = []
    view = make_view(gathered)
    parts = await view.render(list(EVERYWHERE))
    assert gathered == []
    assert '<b id="count-jobs">2</b>' in parts["count-jobs"]
    assert "icon-bad" in parts["icon"]
    assert "&lt;b&gt;" in (await view.render(["title"]))["title"]
    assert gathered == ["gathered"]


def test_a_page_names_its_view_and_listens_before_it_is_made() -> None:
    view = make_view([], argument="a&b=\xfc")
    assert view.live.startswith("view=one:a%26b%3D%C3%BC&since=b00t-")
    assert EventType.RUN in view.asked.service.pages._needed
    assert view.log is None


def test_views_of_others_share_nothing() -> None:
    assert make_view([]).key == make_view([]).key
    assert make_view([]).key != make_view([], argument="x").key
