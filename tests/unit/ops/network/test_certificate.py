from __future__ import annotations

import re
import ssl
from datetime import datetime, timedelta

import pytest

from spyweb.ops.network.certificate import DAY_MS, colons, read_certificate, trusting_context
from tests.fakes.certificates import ENDS, der


def at(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)


def test_everything_that_is_told_of_a_certificate() -> None:
    found = read_certificate(der(), at(ENDS - timedelta(days=30, hours=5)))
    assert (found["subject"], found["issuer"]) == ("CN=example.com", "CN=WE1,O=A\\, B,C=US")
    assert (found["not_before"], found["not_after"]) == ("2026-06-24T22:54:36Z", "2026-09-22T23:54:29Z")
    assert found["serial"] == "2F:70:D5"
    assert found["days_left"] == 30


@pytest.mark.parametrize(
    ("left", "days"), [(timedelta(days=1), 1), (timedelta(hours=23), 0), (timedelta(0), 0), (timedelta(hours=-1), -1)]
)
def test_days_left_are_whole_and_below_zero_once_it_is_over(left: timedelta, days: int) -> None:
    assert read_certificate(der(), at(ENDS - left))["days_left"] == days


def test_the_fingerprint_is_that_of_these_very_bytes() -> None:
    one, other = der(), der()
    first = read_certificate(one, DAY_MS)["fingerprint"]
    assert first == read_certificate(one, 0)["fingerprint"] != read_certificate(other, 0)["fingerprint"]
    assert re.fullmatch(r"XXH3:[0-9a-f]{16}", str(first))


@pytest.mark.parametrize(
    ("number", "text"),
    [(1, "01"), (0, "00"), (0x80, "80"), (0x102, "01:02"), (1 << 159, "80" + ":00" * 19), (-5, "-05")],
)
def test_a_serial_number_is_shown_byte_by_byte(number: int, text: str) -> None:
    assert colons(number) == text


def test_what_is_no_certificate_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="parsing"):
        read_certificate(b"\x30\x03\x02\x01\x01", 0)


def test_nobody_is_refused_for_what_vouches_for_it() -> None:
    context = trusting_context()
    assert context.verify_mode is ssl.CERT_NONE
    assert not context.check_hostname
