"""The page and the fields of a cycle, for a person who writes selectors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import cast

import pytest

from spyweb.errors import FetchError
from spyweb.model import Outcome
from tests.fakes.monitor import URL, make_monitor, page, shop


async def test_the_page_is_kept_as_it_came_and_the_fields_as_json(tmp_path: Path) -> None:
    async with shop(tmp_path) as s:
        s.http.answers[URL] = page(body=b"<p>\xff")
        task = s.start(make_monitor(debug=True))
        assert (await task).outcome is Outcome.SUCCESS
    assert (tmp_path / "jobs/shop/shop-response.html").read_bytes() == b"<p>\xff"
    assert json.loads((tmp_path / "jobs/shop/shop-fields.json").read_text())[0] == {"title": "Lamp", "price": "5"}


async def test_where_nothing_came_nothing_is_written(tmp_path: Path) -> None:
    async with shop(tmp_path) as s:
        s.http.answers[URL] = FetchError("dns", "no such host")
        await s.start(make_monitor(debug=True))
    assert not list(tmp_path.rglob("shop-*"))


async def test_a_folder_that_can_not_be_written_costs_the_files_only(tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs/shop").write_text("a file where the folder should be")
    async with shop(tmp_path) as s:
        assert (await s.start(make_monitor(debug=True))).outcome is Outcome.SUCCESS


async def test_a_debug_run_tells_all_that_is_to_be_seen(tmp_path: Path) -> None:
    async with shop(tmp_path) as s:
        ending = await s.start(make_monitor(keywords=("lamp",)), debug=True)
    result = cast("dict[str, object]", ending.preview)
    assert (result["trouble"], result["http_status"], result["url"]) == ("", 200, URL)
    assert (result["extracted"], result["items"]) == (
        2,
        [{"fields": {"title": "Lamp", "price": "5"}, "matches": ["lamp"]}],
    )
    assert result["files"] == ["jobs/shop/shop-response.html", "jobs/shop/shop-fields.json"]


async def test_a_debug_run_that_fails_shows_how_far_it_came(tmp_path: Path) -> None:
    async with shop(tmp_path) as s:
        s.http.answers[URL] = FetchError("dns", "no such host")
        ending = await s.start(make_monitor(), debug=True)
    result = cast("dict[str, object]", ending.preview)
    stages = cast("list[dict[str, object]]", result["stages"])
    assert (ending.reason, stages[2]["error"], result["files"]) == ("no such host", "no such host", [])
    assert (result["trouble"], result["http_status"], result["extracted"]) == ("no such host", None, None)


@pytest.mark.parametrize(("items", "outcome"), [([], Outcome.FAILED), ([{"title": "x"}], Outcome.SUCCESS)])
async def test_a_debug_run_says_that_the_page_could_not_be_fetched(
    tmp_path: Path, items: list[dict[str, str]], outcome: Outcome
) -> None:
    async with shop(tmp_path) as s:
        s.http.answers[URL] = page(status=404)
        s.extractor.otherwise = items
        ending = await s.start(make_monitor(), debug=True)
    result = cast("dict[str, object]", ending.preview)
    assert (ending.outcome, result["trouble"], result["extracted"]) == (outcome, "http status: 404", len(items))


async def test_an_error_page_that_is_expected_is_a_page(tmp_path: Path) -> None:
    async with shop(tmp_path) as s:
        s.http.answers[URL], s.extractor.otherwise = page(status=404), []
        ending = await s.start(make_monitor(expect_status=((404, 404),)), debug=True)
    assert ending.preview
    assert (ending.outcome, ending.preview["trouble"]) == (Outcome.SUCCESS, "")
