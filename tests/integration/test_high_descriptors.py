"""Processes whose sockets have numbers above 1023, which `select` does not take."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from spyweb.clock import RealClock
from spyweb.lua.pool import open_pool
from spyweb.lua.session import EngineInfo
from spyweb.programs.runner import CommandLimits, CommandRunner
from tests.fakes.commands import shell

ENOUGH = 2048


@pytest.fixture
def high_numbers() -> Iterator[None]:
    """Take every descriptor below 1024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < ENOUGH:
        pytest.skip(f"the system allows {hard} descriptors")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, ENOUGH), hard))
    with ExitStack() as taken:
        while (number := os.open(os.devnull, os.O_RDONLY)) < 1024:
            taken.callback(os.close, number)
        os.close(number)
        yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_workers_start(high_numbers: None) -> None:
    async with open_pool(clock=RealClock(), workers=1, init=EngineInfo(ops=[])) as pool:
        assert pool.stats().workers[0].pid


async def test_commands_run(high_numbers: None) -> None:
    runner = CommandRunner(RealClock(), CommandLimits())
    try:
        assert (await runner.run(shell("echo high"))).stdout == b"high\n"
    finally:
        await runner.close()
