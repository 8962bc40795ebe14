"""A scrape over HTTP."""

from __future__ import annotations

import asyncio
import subprocess
import sys

from prometheus_client.parser import text_string_to_metric_families

from spyweb.web.app import socket_app
from tests.fakes.client import Client, client_of
from tests.fakes.daemon_service import FakeDaemonService


async def test_a_scrape_is_plain_text_that_prometheus_parses(client: Client) -> None:
    async with client.get("/metrics") as answer:
        assert (answer.status, answer.content_type) == (200, "text/plain")
        read = text_string_to_metric_families(await answer.text())
        families = {family.name for family in read}
    assert {"spyweb_build_info", "spyweb_jobs", "spyweb_run_duration_seconds"} <= families


async def test_openmetrics_is_answered_to_whom_it_is_preferred_by() -> None:
    headers = {"Accept": "application/openmetrics-text"}
    app = socket_app(FakeDaemonService())
    async with client_of(app) as client, client.get("/metrics", headers=headers) as answer:
        assert answer.content_type == "application/openmetrics-text"
        assert (await answer.text()).endswith("# EOF\n")


async def test_a_compressed_answer_says_so_and_an_uncompressed_one_does_not(client: Client) -> None:
    async with client.get("/metrics", headers={"Accept-Encoding": "identity"}) as answer:
        assert "Content-Encoding" not in answer.headers
    async with client.get("/metrics", headers={"Accept-Encoding": "gzip"}) as answer:
        assert answer.headers["Content-Encoding"] == "gzip"
        assert "spyweb_build_info" in await answer.text()


async def test_scrapes_that_come_together_are_all_answered(client: Client) -> None:
    answers = await asyncio.gather(*(client.get("/metrics") for _ in range(8)))
    assert {answer.status for answer in answers} == {200}


def test_a_daemon_that_nobody_scrapes_has_not_imported_the_client() -> None:
    code = "import sys, spyweb.daemon.serve; print('prometheus_client' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
