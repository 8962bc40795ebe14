"""Parameters of an address."""

from __future__ import annotations

import pytest

from spyweb.web.app import socket_app
from tests.fakes.client import client_of, get_json, post_json
from tests.fakes.daemon_service import FakeDaemonService, refused


@pytest.mark.parametrize("query", ["count=0", "count=x", "count=1e3", "count=10001", "count=" + "9" * 5000])
async def test_a_number_out_of_range_is_a_bad_request(query: str) -> None:
    async with client_of(socket_app(FakeDaemonService())) as client:
        status, answer = await get_json(client, f"/api/next?{query}")
    assert (status, answer) == (400, {"error": "count: expected a whole number from 1 to 10000"})


async def test_to_name_the_nearest_job_no_job_is_looked_at_but_for_its_name() -> None:
    async with client_of(socket_app(FakeDaemonService(trouble=refused()))) as client:
        status, _ = await post_json(client, "/api/jobs/price/trigger")
    assert status == 404


async def test_an_unknown_job_is_named_with_its_nearest() -> None:
    async with client_of(socket_app(FakeDaemonService())) as client:
        status, answer = await post_json(client, "/api/jobs/price/trigger")
    assert (status, answer) == (404, {"error": "no job is named 'price': did you mean 'prices'?"})
