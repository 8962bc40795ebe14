"""A name server that hangs, behind the one HTTP session: only its own hosts are late."""

from __future__ import annotations

import asyncio
import socket
import threading

from spyweb.ops.network.resolver import Address
from tests.fakes.http_script import open_script
from tests.fakes.web_server import open_web_server


async def test_a_hundred_hosts_without_an_answer_do_not_hold_up_one_that_has_it() -> None:
    answered = threading.Event()

    def lookup(host: str) -> tuple[Address, ...]:
        if host != "good.test":
            answered.wait(20)
        return (Address(socket.AF_INET, "127.0.0.1"),)

    async with open_web_server() as server, open_script(lookup=lookup) as script:
        try:
            async with asyncio.TaskGroup() as group:
                urls = [server.url("/hello", f"bad{number}.test").encode() for number in range(100)]
                hanging = [group.create_task(script.fail("http_request", {b"url": url, b"timeout": 3})) for url in urls]
                async with asyncio.timeout(2):
                    response = await script.ask("http_get", server.url("/hello", "good.test").encode())
                assert not any(task.done() for task in hanging)
                for task in hanging:
                    task.cancel()
        finally:
            answered.set()
    assert response["body"] == b"hello"


async def test_a_name_that_hangs_ends_at_the_requests_timeout() -> None:
    answered = threading.Event()

    def lookup(host: str) -> tuple[Address, ...]:
        answered.wait(20)
        return ()

    async with open_script(lookup=lookup) as script:
        try:
            error = await script.fail("http_request", {b"url": b"http://bad.test/", b"timeout": 0.1})
        finally:
            answered.set()
    assert error["kind"] == "timeout"


async def test_a_name_without_any_address_is_an_error() -> None:
    async with open_script(lookup=lambda host: ()) as script:
        error = await script.fail("http_get", b"http://empty.test/")
    assert error["kind"] == "dns"
