"""Forty checks of all kinds, each with a server on this machine that fails in a way of its own."""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import dns.message
import dns.rcode
import dns.rrset
import trustme
from dns.message import Message

from spyweb.ops.network.certificate import machine_trust
from tests.fakes.name_server import NameServer, open_name_server
from tests.fakes.probed import FullQueue, HttpTarget, Target, open_http_target, open_tcp_target, open_tls_target

FEED = b"""<?xml version="1.0"?><rss version="2.0"><channel><title>News</title>
<item><title>One</title><pubDate>Fri, 27 Nov 2026 08:00:00 +0000</pubDate></item></channel></rss>"""


def can_ping() -> bool:
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP):
        return True
    return False


class Case(NamedTuple):
    kind: str
    fault: str  # of the server: see probed.py and name_server.py
    says: str  # a part of what the failed run says; "": the check holds out
    settings: str = ""

    @property
    def is_slow(self) -> bool:
        return self.fault in SLOW

    @property
    def name(self) -> str:
        return f"{self.kind}_{self.fault.replace(' ', '_').replace('-', '_')}"


CONFIG = """
[permissions]
exec = ["/usr/bin/test"]
net = ["*"]

[channels.ops]
webhook = "http://127.0.0.1:9/"

[alerts]
to = ["ops"]
after_failures = 1

[[maintenance]]
cron = "0 18 * * *"
duration = "6h"
jobs = ["command_*"]

[status_page]
title = "Example"
public = true
tags = ["public"]
export = "exported"
"""
SECRET = "hunter2"
OTHERS = f"""
cron = "0 */6 * * *"
timezone = "UTC"
tags = ["public"]
description = "for {SECRET}"
"""
SLOW = ("slow", "silent", "dripping", "flaky", "full")  # what takes as long as a timeout, or a pause
QUICK = "timeout = 1"
BANNER = """expect = ["banner:find('^220')"]"""
JSON = """expect = ["json.state == 'ok'"]"""
CASES: tuple[Case, ...] = (
    Case("http", "error", "status < 400 does not hold: status is 500"),
    Case("http", "busy", "status < 400 does not hold: status is 503"),
    Case("http", "missing", "status == 200 does not hold: status is 404", 'expect = ["status == 200"]'),
    Case("http", "wrong", """json.state == 'ok' does not hold: json.state is "broken\"""", JSON),
    Case("http", "no json", "the body is no JSON", JSON),
    Case("http", "deep json", "the body is no JSON", JSON),
    Case("http", "empty", "size > 0 does not hold: size is 0", 'expect = ["size > 0"]'),
    Case("http", "slow", "latency < 1000 does not hold: latency is ", 'expect = ["latency < 1000"]'),
    Case("http", "silent", "no complete response within 1 s", QUICK),
    Case("http", "dripping", "no complete response within 1 s", QUICK),
    Case("http", "endless body", "larger than 1 MB", 'max_body_size = "1MB"'),
    Case("http", "endless head", "more than 65536 bytes"),
    Case("http", "reset", "reset by peer"),
    Case("http", "hangs up", "closed without a whole answer"),
    Case("http", "garbage", "not HTTP"),
    Case("http", "cut", "closed after 5 of 500 bytes"),
    Case("http", "loop", "too many redirects"),
    Case("feed", "no json", "this is no feed"),
    Case("feed", "missing", "the server answered 404"),
    Case("feed", "endless body", "larger than 1 MB", 'max_body_size = "1MB"'),
    Case("tcp", "wrong", """does not hold: banner is "421 try later\"""", BANNER),
    Case("tcp", "silent", "no answer in time", f"{BANNER}\n{QUICK}"),
    Case("tcp", "reset", "reset by peer", BANNER),
    Case("tcp", "endless", "does not hold: banner is ", BANNER),
    Case("tcp", "hangs up", "the server closed", BANNER),
    Case("tcp", "full", "no answer in time", QUICK),
    Case("tls", "plain", "failed: "),
    Case("tls", "hangs up", "failed: "),
    Case("tls", "expired", "certificate has expired"),
    Case("tls", "soon", "days > 14 and chain_ok does not hold: days is "),
    Case("tls", "wrong name", "certificate is not valid for '127.0.0.1'"),
    Case("tls", "self-signed", "self-signed certificate"),
    Case("tls", "no chain", "unable to get local issuer certificate"),
    Case("dns", "nxdomain", 'rcode is "NXDOMAIN"'),
    Case("dns", "servfail", 'rcode is "SERVFAIL"'),
    Case("dns", "silent", "no answer in time", QUICK),
    Case("dns", "cname loop", "CNAME"),
    Case("dns", "lies first", ""),
    Case("dns", "truncated", ""),
    Case("http", "flaky", "", "confirm = 1"),
    *((Case("ping", "nothing", ""),) if can_ping() else ()),
    Case("command", "gone", "exit == 0 does not hold: exit is 1"),
)


@dataclass(slots=True)
class Checked:
    """The servers of the cases, and what is wrong with each now."""

    root: Path
    site: HttpTarget
    names: NameServer
    authority: trustme.CA
    ports: dict[str, Target | FullQueue] = field(default_factory=dict)  # of the cases tcp and tls
    of_names: dict[str, str] = field(default_factory=dict)  # the faults of names

    def set_fault(self, case: Case, is_broken: bool) -> None:
        fault = case.fault if is_broken else ""
        if case.kind in ("http", "feed"):
            self.site.faults[f"/{case.name}"] = fault
        elif case.kind == "dns":
            self.of_names[f"{case.name}.test."] = fault
        elif case.kind == "command":
            self._file(case).touch()
            if is_broken:
                self._file(case).unlink()
        elif case.kind != "ping":
            self.ports[case.name].fault = fault

    def _file(self, case: Case) -> Path:
        return self.root / case.name

    def settings_of(self, case: Case) -> str:
        match case.kind:
            case "http" | "feed":
                address = self.site.url(f"/{case.name}")
                of_kind = f'url = "{address}"\nheaders = {{ Authorization = "{SECRET}" }}'
            case "dns":
                of_kind = f'host = "{case.name}.test"\nserver = "{self.names.server().decode()}"'
            case "command":
                of_kind = f'command = ["/usr/bin/test", "-e", "{self._file(case)}"]'
            case "ping":
                of_kind = 'host = "127.0.0.1"'
            case _:
                of_kind = f'host = "127.0.0.1"\nport = {self.ports[case.name].port}'
        return f'check = "{case.kind}"\n{of_kind}\n{case.settings}\n'

    def change(self, answer: Message) -> None:
        """Answer the question about a name, rightly or not."""
        name = answer.question[0].name.to_text()
        match self.of_names.get(name, ""):
            case "nxdomain" | "servfail" as fault:
                answer.set_rcode(dns.rcode.from_text(fault))
            case "cname loop":
                answer.answer = [dns.rrset.from_text(name, 60, "IN", "CNAME", f"b.{name}")]
                answer.answer.append(dns.rrset.from_text(f"b.{name}", 60, "IN", "CNAME", name))
            case _:
                answer.answer = [dns.rrset.from_text(name, 60, "IN", "A", "192.0.2.7")]

    def send(self, wire: bytes) -> list[bytes]:
        """Return what is sent over UDP in place of an answer."""
        match self.of_names.get(dns.message.from_wire(wire).question[0].name.to_text()):
            case "silent":
                return []
            case "truncated":
                return [wire[:2] + bytes([wire[2] | 2]) + wire[3:]]
            case "lies first":
                return [bytes([wire[0] ^ 1]) + wire[1:], wire]
        return [wire]


@asynccontextmanager
async def open_checked(root: Path, *cases: Case) -> AsyncIterator[Checked]:
    """Open the servers of these cases, whose certificates are trusted, and write their files, one each, into jobs/."""
    async with AsyncExitStack() as stack:
        site, names = (
            await stack.enter_async_context(open_http_target()),
            await stack.enter_async_context(open_name_server()),
        )
        checked = Checked(root, site, names, trustme.CA())
        names.change, names.raw = checked.change, checked.send
        for case in cases:
            if case.fault == "full":
                checked.ports[case.name] = stack.enter_context(closing(FullQueue()))
            elif case.kind == "tcp":
                checked.ports[case.name] = await stack.enter_async_context(open_tcp_target())
            elif case.kind == "tls":
                opened = open_tls_target(checked.authority)
                checked.ports[case.name] = await stack.enter_async_context(opened)
            elif case.kind == "feed":
                site.pages[f"/{case.name}"] = FEED
            checked.set_fault(case, is_broken=False)
        trusted = str(root / "authority.pem")
        checked.authority.cert_pem.write_to_path(trusted)
        stack.callback(machine_trust.cache_clear)
        stack.enter_context(patch.dict(os.environ, {"SSL_CERT_FILE": trusted}))
        machine_trust.cache_clear()
        (root / "config.toml").write_text(CONFIG)
        (root / "jobs").mkdir(exist_ok=True)
        for case in cases:
            (root / "jobs" / f"{case.name}.toml").write_text(checked.settings_of(case) + OTHERS)
        yield checked
