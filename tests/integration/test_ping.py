"""ping over the loopback of a network namespace of its own, and what it says where the kernel permits none."""

from __future__ import annotations

import ast
import subprocess
import sys

import pytest

from spyweb.ops.network.probing import NO_ICMP
from tests.fakes.namespace import APART, MADE, NO_NAMESPACE, RANGE, can_be_apart
from tests.fakes.repository import ROOT

SCRIPT = f"""
import asyncio
from spyweb.clock import RealClock
from spyweb.ops.network.client import open_client
from spyweb.settings.sections import HttpSettings
from tests.fakes.ops import ask, make_call, make_world, table
async def find(wait_s, *hosts):
    async with open_client(HttpSettings(), RealClock()) as client:
        call = make_call(make_world(http=client))
        print([await ask(call, "ping", host, table(count=2, timeout=wait_s)) for host in hosts])
asyncio.run(find(5, b"127.0.0.1"))
open("{RANGE}", "w").write("0 0")
asyncio.run(find(5, b"127.0.0.1", b"::1", b"203.0.113.1"))
asyncio.run(find(0.1, b"198.51.100.1"))
"""


@pytest.mark.skipif(not can_be_apart(), reason=NO_NAMESPACE)
def test_replies_are_counted_over_both_protocols_and_failures_told() -> None:
    command = [*APART, f'{MADE}; exec "$0" -c "$1"', sys.executable, SCRIPT]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=20).stdout
    (forbidden,), (four, six, away), (silent,) = map(ast.literal_eval, said.splitlines())
    assert forbidden == [None, f"could not ping 127.0.0.1: {NO_ICMP}"]
    assert "net.ipv4.ping_group_range" in NO_ICMP
    for found, message in (four, six):
        assert message is None
        assert found["loss"] == 0
        assert 0 <= found["latency"] < 1000
    assert silent == [{"loss": 1.0}, None]
    assert away == [None, "could not connect to 203.0.113.1: Network is unreachable"]
