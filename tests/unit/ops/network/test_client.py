from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from types import SimpleNamespace
from typing import cast
from unittest.mock import Mock

import aiohttp
import pytest
import trustme
from msgspec.structs import replace
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from spyweb.clock import RealClock
from spyweb.errors import FetchError
from spyweb.ops.network.address_check import NetGate
from spyweb.ops.network.certificate import machine_trust
from spyweb.ops.network.client import failure_of, joined_headers, open_client
from spyweb.ops.network.connector import REFUSED
from spyweb.ops.network.request import Fetch
from spyweb.settings.sections import HttpSettings


def test_header_names_are_lower_case_and_repeats_are_joined_in_order() -> None:
    raw = [(b"X-A", b"1"), (b"Other", b"\xff"), (b"x-a", b"2"), (b"X-a", b"")]
    assert joined_headers(raw) == {b"x-a": b"1, 2, ", b"other": b"\xff"}


def test_whom_this_machine_trusts_is_trusted_and_nobody_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trustme.CA().cert_pem.write_to_path(tmp_path / "authority.pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "authority.pem"))
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path / "none"))
    machine_trust.cache_clear()
    try:
        context = machine_trust()
    finally:
        machine_trust.cache_clear()
    assert len(context.get_ca_certs()) == 1
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)


def test_no_server_chooses_how_long_a_handshake_takes() -> None:
    usual = [cipher for cipher in ssl.create_default_context().get_ciphers() if cipher["kea"] != "kx-dhe"]
    assert [cipher["name"] for cipher in machine_trust().get_ciphers()] == [cipher["name"] for cipher in usual]


PLAIN = Fetch(url=URL("http://me:secret@example.com/"), timeout_s=30, largest=1)
PROXIED = Fetch(url=URL("http://example.com/"), timeout_s=30, largest=1, proxy=URL("http://me:secret@proxy:1"))

ASKED = aiohttp.RequestInfo(PLAIN.url, "GET", CIMultiDictProxy(CIMultiDict()))


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (TimeoutError(), "timeout"),
        (aiohttp.ServerTimeoutError(), "timeout"),
        (aiohttp.ServerDisconnectedError(), "connect"),
        (ConnectionResetError("reset"), "connect"),
        (ssl.SSLError("bad record"), "tls"),
        (aiohttp.ClientPayloadError("short"), "http"),
        (aiohttp.InvalidURL("x"), "http"),
        (aiohttp.NonHttpUrlRedirectClientError("file:///"), "http"),
        (ValueError("no"), "http"),
        (aiohttp.ClientError("?"), "unknown"),
    ],
)
def test_each_error_has_its_kind(error: Exception, kind: str) -> None:
    failure = failure_of(error, PLAIN)
    assert failure.kind == kind
    assert str(failure)
    assert failure.proxy is None
    assert failure.url == "http://example.com/"


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ("Bad status line:\n  Expected HTTP/:\n\n  b'SSH-2.0'\n  ^", "the answer is not HTTP"),
        ("Invalid header token:\n\n  b'bad header'\n    ^", "Invalid header token"),
        ("", "bad response"),
    ],
)
def test_a_bad_answer_is_told_in_one_line_without_its_bytes(message: str, text: str) -> None:
    assert str(failure_of(aiohttp.ClientResponseError(ASKED, (), status=400, message=message), PLAIN)) == text


def test_a_redirect_to_what_is_no_address_is_told_as_it_came() -> None:
    refused = aiohttp.NonHttpUrlRedirectClientError(f"{REFUSED}http://[]@")
    assert str(failure_of(refused, PLAIN)) == "bad URL: http://[]@"


def test_a_tunnel_that_a_proxy_refuses_is_told_as_the_proxys() -> None:
    refusal = aiohttp.ClientHttpProxyError(ASKED, (), status=403, message="Forbidden")
    assert str(failure_of(refusal, PROXIED)) == "the proxy answered 403 Forbidden"


def test_a_failure_names_the_proxy_without_its_password() -> None:
    assert failure_of(TimeoutError(), PROXIED).proxy == "http://proxy:1"


async def fetch_past(error: BaseException) -> None:
    """Send a request through a proxy, past a gate that raises this error."""
    gate = cast("NetGate", SimpleNamespace(check=Mock(side_effect=error)))
    async with open_client(HttpSettings(), RealClock()) as client:
        await client.fetch(replace(PROXIED, gate=gate))


async def test_a_failure_of_our_own_passes_the_door_and_learns_the_proxy() -> None:
    with pytest.raises(FetchError) as error:
        await fetch_past(FetchError("size", "large"))
    assert (error.value.kind, error.value.proxy) == ("size", "http://proxy:1")


@pytest.mark.parametrize("error", [asyncio.CancelledError(), KeyError("bug"), RuntimeError("bug")])
async def test_cancelling_and_bugs_pass_the_door_as_they_are(error: BaseException) -> None:
    with pytest.raises(type(error)):
        await fetch_past(error)
