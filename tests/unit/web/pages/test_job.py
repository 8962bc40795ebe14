"""The page of a job, and what its buttons do."""

from __future__ import annotations

from spyweb.errors import Refused
from tests.fakes.dashboard import dashboard, get_page, make_dashboard_service


async def test_a_button_does_what_it_says_and_leads_back() -> None:
    service = make_dashboard_service()
    async with dashboard(service) as client:
        for what in ("run", "pause", "resume"):
            data = {"back": "/?state=failing"}
            async with client.post(f"/jobs/prices/{what}", data=data, allow_redirects=False) as answer:
                assert (answer.status, answer.headers["Location"]) == (303, "/?state=failing")
    assert service.story == ["trigger prices", "pause prices", "resume prices"]


async def test_a_refusal_is_a_page_in_plain_words() -> None:
    service = make_dashboard_service()
    service.refusal = Refused("prices is <b>running</b>")
    headers = {"Accept": "text/html"}
    async with dashboard(service) as client, client.post("/jobs/prices/run", data={"x": ""}, headers=headers) as answer:
        assert answer.status == 409
        page = await answer.text()
    assert "Not now</h1>" in page
    assert "prices is &lt;b&gt;running&lt;/b&gt;" in page


async def test_a_job_that_is_not_there_offers_what_is_close() -> None:
    async with (
        dashboard() as client,
        client.post("/jobs/pices/run", data={"x": ""}, headers={"Accept": "text/html"}) as answer,
    ):
        assert answer.status == 404
        assert '<a href="/jobs/prices"' in await answer.text()
    async with dashboard() as client:
        assert (await get_page(client, "/jobs/prices/run"))[0] == 405
