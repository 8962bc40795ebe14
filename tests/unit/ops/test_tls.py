from __future__ import annotations

import pytest

from spyweb.errors import FetchError, OpError
from spyweb.ops.tls import name_of
from tests.fakes.certificates import der
from tests.fakes.ops import FakeHttp, ask, make_call, make_world


async def test_a_certificate_is_a_table() -> None:
    http = FakeHttp(certificates={("example.com", 443): der(), ("example.com", 8443): der()})
    call = make_call(make_world(http=http))
    for arguments in ([b"example.com"], [b"EXAMPLE.com", 8443], [b"example.com", None]):
        found, error = await ask(call, "tls_probe", *arguments)
        assert error is None
        assert isinstance(found, dict)
        assert sorted(found) == [
            "days_left", "fingerprint", "issuer", "not_after", "not_before", "serial", "subject",
        ]  # fmt: skip
        assert found["subject"] == "CN=example.com"


async def test_what_goes_wrong_is_nil_and_a_message() -> None:
    call = make_call(make_world(http=FakeHttp(certificates={("broken.example", 443): b"\x30"})))
    refused = "could not connect to a.example:443: Connection refused"
    assert await ask(call, "tls_probe", b"a.example") == [None, refused]
    assert await ask(call, "tls_probe", b"a.example", 0) == [None, "not a port: 0"]
    assert await ask(call, "tls_probe", b"a.example", 65536) == [None, "not a port: 65536"]
    assert await ask(call, "tls_probe", b"https://a.example/") == [None, "not a host name: 'https://a.example/'"]
    found, message = await ask(call, "tls_probe", b"broken.example")
    assert found is None
    assert str(message).startswith("the certificate can't be read: ")
    with pytest.raises(OpError, match="bad argument #2 to 'tls_probe'"):
        await ask(call, "tls_probe", b"a.example", b"https")


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
