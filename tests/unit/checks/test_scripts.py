"""The scripts of the checks, in a real VM: what each asks, what its conditions see, and why a run of it fails."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from email.utils import formatdate

import pytest

from spyweb.checks.settings import KINDS, PAUSE_MS, STEPS, CheckKind, script_of
from spyweb.errors import OpError
from tests.fakes.checks import OPS, Op, run_check

URL = "https://example.org/health"
PAGE = {
    "status": 200, "time_ms": 40, "body": b'{"state": "ok", "age": 7, "items": [{"n": 1}, {"n": 2}]}', "size": 55,
    "headers": {"content-type": "application/json"}, "url": URL, "ip": "192.0.2.1", "redirects": 1,
}  # fmt: skip


def finding(**found: object) -> Op:
    return lambda *_: [found]


def failing(reason: str) -> Op:
    return lambda *_: [None, reason]


def answering(**changes: object) -> Op:
    return finding(**{**PAGE, **changes})


def reason_of(*conditions: str, **changes: object) -> str:
    return run_check(CheckKind.HTTP, {"url": URL, "expect": [*conditions]}, http_request=answering(**changes)).reason


def test_all_conditions_hold_and_the_figures_are_the_result() -> None:
    conditions = [
        "status == 200 and latency < 800 and redirects == 1",
        "json.state == 'ok'",
        "#json.items == 2 and json.items[2].n == 2",
        "headers['Content-Type']:find('json') or headers['content-type']:find('json')",
        "body:find('ok', 1, true) and size == 55 and ip:match('^192')",
        "json.error == nil",
    ]
    run = run_check(CheckKind.HTTP, {"url": URL, "expect": conditions}, http_request=answering())
    assert (run.succeeded, run.reason) == (True, "")
    assert run.result == {"status": 200, "latency": 40, "size": 55, "redirects": 1, "ip": b"192.0.2.1"}
    assert run.asked[0][1][0][b"headers"] == {b"connection": b"close"}  # type: ignore[index]


@pytest.mark.parametrize(
    ("condition", "reason"),
    [
        ("latency < 30", "latency < 30 does not hold: latency is 40"),
        ("json.state == 'up'", "json.state == 'up' does not hold: json.state is \"ok\""),
        ("json.data == 1", "json.data == 1 does not hold: json.data is missing"),
        ("json.count < 5", "json.count < 5: json.count is missing"),
        ("json.data.count < 5", "json.data.count < 5: json.data is missing"),
        ("json.state < 5", 'json.state < 5: attempt to compare string with number (json.state is "ok")'),
        ("#json.items > 2", "#json.items > 2 does not hold: #json.items is 2"),
        ("json.items[1].n == 2", "json.items[1].n == 2 does not hold: json.items[1].n is 1"),
        ("headers['x-a'] == 'b'", "headers['x-a'] == 'b' does not hold: headers[\"x-a\"] is missing"),
        (
            "status == 200 and latency > 50",
            "status == 200 and latency > 50 does not hold: status is 200, latency is 40",
        ),
        (
            "status == 200\n  and latency < 30",
            "status == 200 and latency < 30 does not hold: status is 200, latency is 40",
        ),
        ("false", "false does not hold"),
    ],
)
def test_a_condition_that_does_not_hold_is_the_reason_with_the_values_that_it_read(condition: str, reason: str) -> None:
    assert reason_of(condition) == reason


def test_a_long_text_is_shown_cut_in_one_line_and_without_half_a_character() -> None:
    body = ("a\n" + "é" * 60).encode()
    shown = reason_of("body == ''", body=body)
    assert shown.startswith("body == '' does not hold: body is \"a é")
    assert shown.endswith('é…"')
    assert len(shown) < 120
    key = reason_of("headers[body] == ''", body=body)
    assert key.endswith('é…"] is missing')
    assert len(key) < 250


def test_what_is_dear_is_asked_only_where_a_condition_comes_to_it() -> None:
    certificate = finding(days_left=3)
    late = {"url": URL, "expect": ["status == 200", "cert_days > 14"]}
    assert "cert_days is 3" in run_check(CheckKind.HTTP, late, http_request=answering(), tls_probe=certificate).reason
    assert run_check(CheckKind.HTTP, late, http_request=answering(status=500)).reason.startswith("status == 200 ")
    assert reason_of("json.a == 1", body=b"<p>").startswith("json.a == 1: the body is no JSON: ")
    assert reason_of("cert_days > 1", url="http://a/") == "cert_days > 1: cert_days is of https addresses"


@pytest.mark.parametrize(
    ("url", "host", "port"),
    [
        ("https://a.example/x?y", b"a.example", 443), ("https://u:p@a.example:8443", b"a.example", 8443),
        ("https://[2001:db8::1]/", b"[2001:db8::1]", 443), ("https://10.0.0.1:444/", b"10.0.0.1", 444),
    ],
)  # fmt: skip
def test_the_certificate_is_that_of_the_address_in_the_end(url: str, host: bytes, port: int) -> None:
    run = run_check(
        CheckKind.HTTP,
        {"url": URL, "expect": ["cert_days > 14"]},
        http_request=answering(url=url), tls_probe=finding(days_left=30),
    )  # fmt: skip
    assert run.result["cert_days"] == 30
    assert run.asked[1] == ("tls_probe", [host, port, {b"timeout": 10}])


@pytest.mark.parametrize("kind", list(CheckKind))
def test_a_try_takes_no_longer_than_the_limit_of_its_run_allows(kind: CheckKind) -> None:
    found = {**PAGE, "days_left": 30, "latency": 1, "rcode": "NOERROR", "records": ["x"], "loss": 0, "exit_code": 0}
    every = finding(**found, stdout="", stderr="", took_ms=1)
    values: dict[str, object] = {"url": URL, "host": "a.example", "port": 25, "command": ["/bin/true"]}
    more = {"expect": ["cert_days > 14"]} if kind is CheckKind.HTTP else {}
    run = run_check(kind, {**values, **more}, **{name.replace(".", "_"): every for name in OPS})
    assert 0 < len(run.asked) <= STEPS
    for _, (*_, options) in run.asked:
        assert isinstance(options, dict)
        assert options[b"timeout"] * options.get(b"count", 1) == 10


def test_a_failure_is_confirmed_after_pauses_that_double() -> None:
    answers: Iterator[Sequence[object]] = iter(
        [[None, {"error": "could not connect"}], [{**PAGE, "status": 500}], [PAGE]]
    )
    run = run_check(CheckKind.HTTP, {"url": URL, "confirm": 2}, http_request=lambda *_: [*next(answers)])
    assert run.slept_ms == [PAUSE_MS, 2 * PAUSE_MS]
    assert run.result["attempts"] == 3

    always = run_check(CheckKind.HTTP, {"url": URL, "confirm": 2}, http_request=answering(status=500))
    assert always.reason == "status < 400 does not hold: status is 500 (3 tries)"
    assert len(always.asked) == 3


def test_what_the_job_may_not_do_is_the_reason_and_not_tried_again() -> None:
    def refuse(*_: object) -> Sequence[object]:
        raise OpError("http_request: 'site' may not reach example.org: add it to net")

    run = run_check(CheckKind.HTTP, {"url": URL, "confirm": 2}, http_request=refuse)
    assert run.reason == "http_request: 'site' may not reach example.org: add it to net"
    assert not run.slept_ms


@pytest.mark.parametrize(
    "condition",
    [
        "(function() status = 1 end)() == nil", "(function() json.state = 'x' end)() == nil",
        "_ENV == nil or (function() _ENV.x = 1 end)()", "load('return 1')() == 1", "getmetatable('').__index",
        "_G.print", "print", "values.url", "check", "http_request", "string.rep", "1) or (2", "status == 200; x",
        "1) end, function() return (true", "setmetatable(json, nil)", "rawset(json, 1, 2)", "error", "pcall",
        "(''):dump()", "body.x.y", "('x'):rep(1 << 40)",
    ],
)  # fmt: skip
def test_a_condition_changes_nothing_and_reaches_nothing_else(condition: str) -> None:
    run = run_check(CheckKind.HTTP, {"url": URL, "expect": [condition, "status == 200"]}, http_request=answering())
    assert not run.succeeded
    assert run.reason.startswith(condition)


def test_a_condition_sees_no_more_of_a_table_than_what_is_in_it() -> None:
    assert reason_of("json.__index == nil and json.__metatable == nil", "('x').y == nil") == ""


def test_each_script_knows_the_names_and_the_pause_of_the_settings() -> None:
    for kind, of_kind in KINDS.items():
        source = script_of(kind)[1].decode()
        assert f'" {" ".join(of_kind.names)} "' in source
        assert f"local PAUSE_MS = {PAUSE_MS} " in source


def test_a_port_is_connected_to_and_its_first_line_read_where_it_is_named() -> None:
    values: dict[str, object] = {"host": "mail.example.org", "port": 25}
    answer = finding(latency=3.5, banner=b"220 ready")
    plain = run_check(CheckKind.TCP, values, tcp_probe=answer)
    assert plain.result == {"connected": True, "latency": 3.5}
    assert plain.asked == [("tcp_probe", [b"mail.example.org", 25, {b"timeout": 10}])]
    named = run_check(CheckKind.TCP, {**values, "expect": ["banner:find('^220')"]}, tcp_probe=answer)
    assert named.succeeded
    assert named.asked[0][1][2] == {b"timeout": 10, b"read": 1024}

    refused = failing("Connection refused")
    assert run_check(CheckKind.TCP, values, tcp_probe=refused).reason == (
        "connected does not hold: connected is false (Connection refused)"
    )
    assert run_check(CheckKind.TCP, {**values, "expect": ["not connected"]}, tcp_probe=refused).succeeded


def test_a_certificate_has_days_names_and_a_chain_that_is_trusted_or_not() -> None:
    found = finding(days_left=30, issuer="CN=x", names=["a.example", "b.example"])
    values = {"host": "a.example", "expect": ["days > 14 and chain_ok", "names['b.example'] and #names == 2"]}
    trusted = run_check(CheckKind.TLS, values, tls_probe=found, tcp_probe=finding(latency=9))
    assert trusted.result == {"days": 30, "chain_ok": True, "latency": 9, "issuer": b"CN=x"}
    doubtful = run_check(CheckKind.TLS, values, tls_probe=found, tcp_probe=failing("self-signed certificate"))
    assert doubtful.reason == (
        "days > 14 and chain_ok does not hold: days is 30, chain_ok is false (self-signed certificate)"
    )
    down = run_check(CheckKind.TLS, values, tls_probe=failing("could not connect"))
    assert down.reason == "could not connect"


def test_records_of_a_name_are_a_list_that_is_asked_for_one_of_them() -> None:
    answer = finding(records=["192.0.2.1", "192.0.2.2"], rcode="NOERROR", ttl=300, latency=2)
    values = {"host": "example.org", "expect": ["records['192.0.2.2'] and #records == 2", "records['192.0.2.9']"]}
    run = run_check(CheckKind.DNS, values, dns_query=answer)
    assert run.reason == "records['192.0.2.9'] does not hold: records[\"192.0.2.9\"] is missing"
    assert run.asked == [("dns_query", [b"example.org", b"A", {b"timeout": 10}])]
    none = run_check(CheckKind.DNS, {"host": "x"}, dns_query=finding(records=[], rcode="NXDOMAIN"))
    assert none.reason.endswith('does not hold: rcode is "NXDOMAIN"')


def test_the_loss_of_pings_is_compared() -> None:
    run = run_check(CheckKind.PING, {"host": "192.0.2.1"}, ping=finding(loss=1))
    assert run.reason == "loss < 1 does not hold: loss is 1"
    assert run.asked == [("ping", [b"192.0.2.1", {b"count": 3, b"timeout": 10 / 3}])]


def test_a_command_is_judged_by_its_end_and_what_it_wrote() -> None:
    def ended(code: int, out: str, err: str = "") -> Op:
        return finding(exit_code=code, stdout=out, stderr=err, took_ms=5)

    values = {"command": ["/bin/true", "x"], "expect": ["exit == 0", "stdout == 'active'"]}
    run = run_check(CheckKind.COMMAND, values, exec_run=ended(0, "active\n"))
    assert run.result == {"exit": 0, "latency": 5}
    assert run.asked == [("exec.run", [[b"/bin/true", b"x"], {b"timeout": 10}])]
    failed = run_check(CheckKind.COMMAND, values, exec_run=ended(3, "", "a\nno such unit\n"))
    assert failed.reason == "exit == 0 does not hold: exit is 3 (no such unit)"


HOUR = 3600


def atom(age_s: float) -> str:
    moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(time.time() - age_s + 2 * HOUR))
    return (
        '<?xml version="1.0"?><!-- <entry> --><feed xmlns="x"><title>Ours &amp; <![CDATA[x]]></title>'
        f"<entry><title>one</title><published>2001-01-01T00:00:00Z</published></entry>"
        f"<entry a='b'><updated>{moment}.5+02:00</updated><content><![CDATA[<entry>]]></content></entry></feed>"
    )


def rss(age_s: float) -> str:
    items = "".join(f"<item><pubDate>{formatdate(time.time() - age)}</pubDate></item>" for age in (9e6, age_s))
    return f"<rss><channel><title><![CDATA[Ours &]]></title>{items}</channel></rss>"


@pytest.mark.parametrize("feed", [atom, rss])
def test_the_entries_of_a_feed_are_counted_and_the_newest_is_found(feed: Op) -> None:
    conditions = ["entries == 2", "title:find('^Ours &')", "newest > 86300 and newest < 86500"]
    answer = answering(body=str(feed(86_400)).encode())
    run = run_check(CheckKind.FEED, {"url": URL, "expect": conditions}, http_request=answer)
    assert run.reason == ""
    assert run.result["entries"] == 2


BOMB = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 30))
CUT = "the feed is cut off: it has no </rss>"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("<html><item>", "this is no feed"),
        ("<" * 2_000_000, "this is no feed"),
        ("<rss><item></item>", CUT),
        ("<rss>" + "<!-- " * 400_000 + "</rss>", CUT),
        ("<rss><item><title>" + "x" * 1_000_000, CUT),
        ("<rss><item>".encode("utf-16"), "this is no feed, or one in UTF-16, which is not read"),
        ("<rss><item><pubDate>Fri, 99 Foo 2026</pubDate></item></rss>", "newest is missing, title is missing"),
        ("<rss>" + "<item></item>" * 100_000 + "</rss>", "newest is missing, title is missing"),
        (f"<!DOCTYPE rss [{BOMB}]><rss><title>&l29;</title></rss>", 'newest is missing, title is "&l29;"'),
        ("<rss><title>\xe9 </title></rss>".encode("latin-1"), 'newest is missing, title is "\ufffd "'),
    ],
)
def test_what_is_no_whole_feed_is_told_and_a_hostile_one_takes_little(body: str | bytes, reason: str) -> None:
    answer = answering(body=body if isinstance(body, bytes) else body.encode())
    run = run_check(CheckKind.FEED, {"url": URL, "expect": ["(newest or 1) == title"]}, http_request=answer)
    assert run.reason.removeprefix("(newest or 1) == title does not hold: ") == reason
