"""dns_query against a real name server, over UDP and TCP, whatever it answers."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Sequence

import dns.flags
import dns.message
import dns.rcode
import dns.resolver
import pytest
from dns.message import Message
from msgspec import structs

from spyweb.clock import RealClock
from spyweb.errors import FetchError
from spyweb.ops.network import probing
from spyweb.ops.network.address_check import NetGate
from spyweb.ops.network.client import open_client
from spyweb.ops.network.name_query import answer_in
from spyweb.ops.network.request import Probe
from spyweb.permissions.hosts import read_net
from spyweb.permissions.policy import Grants, policy_of
from spyweb.settings.sections import HttpSettings
from tests.fakes.name_server import NameServer, open_name_server
from tests.fakes.ops import PRICES, ask, make_call, make_world

NAME = "www.example.test."


@pytest.fixture
async def names() -> AsyncIterator[NameServer]:
    async with open_name_server() as names:
        yield names


async def query(names: NameServer, kind: str = "A", name: str = NAME, timeout_s: float = 5) -> Sequence[object]:
    options = {b"server": names.server(), b"timeout": timeout_s}
    async with open_client(HttpSettings(), RealClock()) as client:
        return await ask(make_call(make_world(http=client)), "dns_query", name.encode(), kind.encode(), options)


async def found(names: NameServer, kind: str = "A", name: str = NAME) -> dict[str, object]:
    answer, message = await query(names, kind, name)
    assert message is None
    assert isinstance(answer, dict)
    return answer


async def test_records_are_as_dig_shows_them_and_sorted(names: NameServer) -> None:
    names.records = [f"{NAME} 300 IN A 192.0.2.9", f"{NAME} 300 IN A 192.0.2.1"]
    answer = await found(names)
    assert (answer["records"], answer["rcode"], answer["ttl"]) == ([b"192.0.2.1", b"192.0.2.9"], "NOERROR", 300)
    assert isinstance(answer["latency"], float)
    names.records = [f"{NAME} 60 IN MX 10 mail.example.test."]
    assert (await found(names, "mx"))["records"] == [b"10 mail.example.test."]
    names.records = [f'{NAME} 60 IN TXT "v=spf1 " "-all"']
    assert (await found(names, "TXT"))["records"] == [b"v=spf1 -all"]
    assert names.story == [f"UDP {NAME} A", f"UDP {NAME} MX", f"UDP {NAME} TXT"]


async def test_an_address_is_asked_about_in_reverse(names: NameServer) -> None:
    names.records = ["7.2.0.192.in-addr.arpa. 60 IN PTR www.example.test."]
    assert (await found(names, "PTR", "192.0.2.7"))["records"] == [b"www.example.test."]


@pytest.mark.parametrize("rcode", [dns.rcode.NXDOMAIN, dns.rcode.SERVFAIL, dns.rcode.REFUSED])
async def test_a_name_without_records_is_an_answer(names: NameServer, rcode: dns.rcode.Rcode) -> None:
    def refuse(answer: Message) -> None:
        answer.set_rcode(rcode)
        if rcode == dns.rcode.REFUSED:
            answer.question.clear()

    names.change = refuse
    answer = await found(names)
    assert (answer["records"], answer["rcode"]) == ([], dns.rcode.to_text(rcode))
    assert "ttl" not in answer


async def test_a_truncated_answer_is_asked_for_over_tcp(names: NameServer) -> None:
    names.is_truncated = True
    names.records = [f"{NAME} 60 IN A 192.0.2.{number}" for number in range(1, 201)]
    assert len(str((await found(names))["records"]).split(",")) == 200
    assert names.story == [f"UDP {NAME} A", f"TCP {NAME} A"]
    names.is_cut = True
    reason = "its answer over TCP ends too early"
    assert await query(names) == [None, f"could not connect to 127.0.0.1:{names.port}: {reason}"]


async def test_cnames_are_followed_and_a_circle_of_them_is_told(names: NameServer) -> None:
    names.records = [f"{NAME} 300 IN CNAME a.test.", "a.test. 20 IN CNAME b.test.", "b.test. 60 IN A 192.0.2.1"]
    answer = await found(names)
    assert (answer["records"], answer["ttl"]) == ([b"192.0.2.1"], 20)
    names.records = [f"{NAME} 300 IN CNAME a.test.", f"a.test. 20 IN CNAME {NAME}"]
    assert await query(names) == [None, "the answer makes no sense: The CNAME chain is too long."]
    assert (await found(names, "CNAME"))["records"] == [b"a.test."]


async def test_records_of_another_name_are_no_answer(names: NameServer) -> None:
    names.records = ["bank.test. 60 IN A 192.0.2.66"]
    assert (await found(names))["records"] == []
    names.records = [f"{NAME} 60 IN A 192.0.2.66"]
    names.change = lambda answer: answer.set_rcode(dns.rcode.NXDOMAIN)
    assert await query(names) == [
        None,
        "the answer makes no sense: The rcode is NXDOMAIN but an answer was found.",
    ]


def other_id(wire: bytes) -> bytes:
    return bytes([wire[0] ^ 1]) + wire[1:]


def other_question(wire: bytes) -> bytes:
    return wire.replace(b"\x03www", b"\x03ftp")


@pytest.mark.parametrize("spoil", [other_id, other_question, lambda _: b"x", lambda wire: wire[:2] + b"\0" * 10])
async def test_only_the_answer_to_this_question_counts(names: NameServer, spoil: Callable[[bytes], bytes]) -> None:
    names.records = [f"{NAME} 60 IN A 192.0.2.1"]
    names.raw = lambda wire: [spoil(wire), spoil(wire), wire]
    assert (await found(names))["records"] == [b"192.0.2.1"]
    names.raw = lambda wire: [spoil(wire)]
    reason = "no answer in time, but 1 to something else"
    assert await query(names, timeout_s=0.5) == [None, f"could not connect to 127.0.0.1:{names.port}: {reason}"]


async def test_an_answer_from_another_port_does_not_count(names: NameServer) -> None:
    names.elsewhere = True
    reason = f"could not connect to 127.0.0.1:{names.port}: no answer in time"
    assert await query(names, timeout_s=0.2) == [None, reason]


async def test_answers_to_something_else_are_counted_and_given_up(names: NameServer) -> None:
    names.raw = lambda wire: [other_id(wire)] * 150
    reason = "no answer in time, but 100 to something else"
    assert await query(names) == [None, f"could not connect to 127.0.0.1:{names.port}: {reason}"]


async def test_a_lost_question_is_asked_again_and_an_answer_in_time_counts_however_long_it_waits_for_a_thread(
    names: NameServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_slowly(data: bytes, query: Message) -> dict[str, object] | None:
        time.sleep(0.1)
        return answer_in(data, query)

    monkeypatch.setattr(probing, "ASK_AGAIN_S", (0.02, 0.02, 0.02))
    monkeypatch.setattr(probing, "answer_in", read_slowly)
    names.lost, names.records = 1, [f"{NAME} 60 IN A 192.0.2.1"]
    assert (await found(names))["records"] == [b"192.0.2.1"]


async def test_an_answer_that_can_not_be_read_is_a_message(names: NameServer) -> None:
    names.raw = lambda wire: [wire[:12] + b"\xff" * 40]
    answer, message = await query(names)
    assert answer is None
    assert str(message).startswith("the answer makes no sense: ")


async def test_what_is_no_type_or_name_is_a_message(names: NameServer) -> None:
    for kind in ("AXFR", "ANY", "OPT"):
        assert await query(names, kind) == [None, f"can't ask for {NAME} {kind}: this is no type of records"]
    for kind in ("NONSENSE", "TYPE99999"):
        assert str((await query(names, kind))[1]).startswith(f"can't ask for {NAME} {kind}: ")
    assert str((await query(names, name="a" * 70 + ".test"))[1]).startswith("can't ask for aaa")
    assert names.story == []


def use_servers(monkeypatch: pytest.MonkeyPatch, *servers: str) -> None:
    """Make these the name servers of this machine."""
    read = lambda resolver, _path: setattr(resolver, "nameservers", [*servers])  # noqa: E731
    monkeypatch.setattr(dns.resolver.Resolver, "read_resolv_conf", read)


@pytest.mark.parametrize("rcode", [dns.rcode.SERVFAIL, dns.rcode.REFUSED])
async def test_where_a_server_can_not_or_will_not_answer_the_next_one_is_asked(
    names: NameServer, monkeypatch: pytest.MonkeyPatch, rcode: dns.rcode.Rcode
) -> None:
    names.change = lambda answer: answer.set_rcode(rcode)
    wanted = Probe(function="dns_query", host=NAME, type="A", port=names.port, timeout=5)
    use_servers(monkeypatch, "127.0.0.1", "127.0.0.2")
    async with open_client(HttpSettings(), RealClock()) as client:
        assert (await client.probe(wanted))["rcode"] == rcode.name, "nobody listens at the other"
        async with open_name_server("127.0.0.2", names.port) as second:
            second.records = [f"{NAME} 60 IN A 192.0.2.1"]
            assert (await client.probe(wanted))["records"] == [b"192.0.2.1"]


async def test_this_machine_s_servers_are_asked_in_turn_whatever_may_be_reached(
    names: NameServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_servers(monkeypatch, "127.0.0.2", "127.0.0.1")  # nobody listens at the first
    names.records = [f"{NAME} 60 IN A 192.0.2.1"]
    wanted = Probe(function="dns_query", host=NAME, type="A", port=names.port, timeout=5)
    gate = NetGate(policy_of(Grants(net=read_net([]))), PRICES, "dns_query")
    async with open_client(HttpSettings(deny_private=True), RealClock()) as client:
        assert (await client.probe(wanted, gate))["records"] == [b"192.0.2.1"]
        with pytest.raises(FetchError, match="is a private address"):
            await client.probe(structs.replace(wanted, server="127.0.0.1"), None)
