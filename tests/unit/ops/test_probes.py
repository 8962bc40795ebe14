from __future__ import annotations

from typing import Any

import pytest

from spyweb.errors import FetchError, OpError
from spyweb.ops.network.request import Probe
from spyweb.ops.probes import name_of
from spyweb.permissions.hosts import read_net
from spyweb.permissions.policy import Audit, Grants, policy_of
from tests.fakes.ops import FakeHttp, ask, make_call, make_world, table

ANSWER: dict[str, object] = {"latency": 1.5}


def tcp(host: str, port: int, **how: Any) -> Probe:
    return Probe(function="tcp_probe", host=host, port=port, **{"timeout": 10, **how})


def dns(name: str, kind: str, **how: Any) -> Probe:
    return Probe(function="dns_query", host=name, type=kind, **{"port": 53, "timeout": 5, **how})


def echo(host: str, **how: Any) -> Probe:
    return Probe(function="ping", host=host, port=0, **{"count": 3, "timeout": 1, **how})


@pytest.mark.parametrize(
    ("arguments", "probe"),
    [
        ([b"A.test", 25], tcp("a.test", 25)),
        ([b"::1", 25, table(send=b"HELO")], tcp("::1", 25, send=b"HELO", read=1024)),
        ([b"a.test", 993, table(tls=True, read=80, timeout=2.5)], tcp("a.test", 993, tls=True, read=80, timeout=2.5)),
        ([b"A.test"], Probe(function="tls_probe", host="a.test", port=443, timeout=30)),
        ([b"a.test", None, table(timeout=2)], Probe(function="tls_probe", host="a.test", port=443, timeout=2)),
        ([b"A.test.", b"mx"], dns("a.test.", "MX")),
        (
            [b"_d.a.test", b"TXT", table(server=b"9.9.9.9", timeout=1)],
            dns("_d.a.test", "TXT", server="9.9.9.9", timeout=1),
        ),
        ([b".", b"NS", table(server=b"[::1]:5353")], dns(".", "NS", server="::1", port=5353)),
        (["bücher.test".encode()], echo("xn--bcher-kva.test")),
        ([b"a.test", table(count=1, timeout=0.5)], echo("a.test", count=1, timeout=0.5)),
    ],
)
async def test_what_is_asked_for_is_probed(arguments: list[object], probe: Probe) -> None:
    http = FakeHttp(found=ANSWER)
    assert await ask(make_call(make_world(http=http)), probe.function, *arguments) == [ANSWER, None]
    assert http.probed == [probe]


@pytest.mark.parametrize(
    ("op", "arguments", "message"),
    [
        ("tcp_probe", [b"a.test", 0], "not a port: 0"),
        ("tcp_probe", [b"a b", 25], "not a host name: 'a b'"),
        ("dns_query", [b"a/b", b"A"], "not a host name: 'a/b'"),
        ("ping", [b""], "not a host name: ''"),
        ("tls_probe", [b"a.test", 65536], "not a port: 65536"),
        ("tls_probe", [b"https://a.test/"], "not a host name: 'https://a.test/'"),
        ("tls_probe", [b"a.test"], "could not connect to a.test:443: Connection refused"),
    ],
)
async def test_what_fails_is_nil_and_a_message(op: str, arguments: list[object], message: str) -> None:
    assert await ask(make_call(), op, *arguments) == [None, message]


PORT = "a port from 1 to 65535 expected after the colon"


@pytest.mark.parametrize(
    ("op", "arguments", "reason"),
    [
        ("tcp_probe", [b"a.test", 25, table(timeout=61)], "field 'timeout': a number up to 60 expected"),
        ("tcp_probe", [b"a.test", 25, table(read=5000)], "field 'read': an integer up to 4096 expected"),
        ("tcp_probe", [b"a.test", 25, table(read=1.5)], "field 'read': an integer up to 4096 expected"),
        (
            "tcp_probe",
            [b"a.test", 25, table(send=b"x" * 4097)],
            "field 'send': the text has 4097 bytes, at most 4096 are allowed",
        ),
        ("tcp_probe", [b"a.test", 25, table(tls=b"yes")], "field 'tls': boolean expected, got string"),
        ("tcp_probe", [b"a.test", 25, table(timout=1)], "there is no option 'timout'; did you mean \"timeout\"?"),
        ("dns_query", [b"a.test", b"A", table(server=b"a b")], "field 'server': not a host name: 'a b'"),
        ("dns_query", [b"a.test", b"A", table(server=b"a.test:0")], f"field 'server': 'a.test:0': {PORT}"),
        ("ping", [b"a.test", table(count=0)], "field 'count': a positive number expected"),
        ("ping", [b"a.test", table(count=11)], "field 'count': an integer up to 10 expected"),
        ("ping", [b"a.test", 3], "table expected, got number"),
        ("tls_probe", [b"a.test", b"https"], "number expected, got string"),
    ],
)
async def test_a_wrong_argument_raises(op: str, arguments: list[object], reason: str) -> None:
    with pytest.raises(OpError) as raised:
        await ask(make_call(), op, *arguments)
    assert str(raised.value) == f"bad argument #{len(arguments)} to '{op}' ({reason})"


async def test_a_name_server_is_a_host_that_is_reached_and_without_one_the_name_is() -> None:
    audit, http = Audit(), FakeHttp(found=ANSWER)
    policy = policy_of(Grants(net=read_net(["9.9.9.9", "a.test"])))
    call = make_call(make_world(http=http), policy=policy, audit=audit)
    assert await ask(call, "dns_query", b"b.test", b"A", table(server=b"9.9.9.9")) == [ANSWER, None]
    for arguments, where in (
        ([b"b.test", b"A"], "b.test:53"),
        ([b"a.test", b"A", table(server=b"8.8.8.8")], "8.8.8.8:53"),
    ):
        with pytest.raises(OpError, match=f"dns_query: 'prices' may not reach {where}: add "):
            await ask(call, "dns_query", *arguments)
    await ask(call, "ping", b"a.test")
    await ask(call, "tcp_probe", b"a.test", 25)
    assert 'net = ["9.9.9.9:53", "a.test", "a.test:25"]' in audit.block("prices")


@pytest.mark.parametrize(
    ("host", "name"), [("Example.com", "example.com"), ("bücher.example", "xn--bcher-kva.example"), ("[::1]", "::1")]
)
def test_names_are_written_as_the_network_knows_them(host: str, name: str) -> None:
    assert name_of(host.encode()) == name


@pytest.mark.parametrize(
    "host", [b"", b"a b", b"a/b", b"me@a", b"a\n", b"a\0", b"\xff", b"a:443", b"a?b", "ü".encode() * 254]
)
def test_what_is_no_host_name_is_refused(host: bytes) -> None:
    with pytest.raises(FetchError, match="not a host name"):
        name_of(host)
