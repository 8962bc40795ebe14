from __future__ import annotations

import pytest

from spyweb.limits import AUTHORITY, HOST
from spyweb.ops.network.request import check_authority, check_name, read_url

LONGEST = f"{'a' * 63}." * 3 + "a" * 61
MARKS = "a" + "\u0301\u0327" * AUTHORITY  # normalizing them costs the square of their number


@pytest.mark.parametrize("host", ["a" * 254, "ü" * 254, "\u4e00" * 4_000, MARKS])
@pytest.mark.parametrize("url", ["http://{}/", "//{}", "HTTP://me:x@{}:80?q", " ht\ttp:/\n/{}#f", "\x01x+y-z.1://@{}/"])
def test_a_host_that_is_longer_than_any_name_is_not_encoded(url: str, host: str) -> None:
    with pytest.raises(ValueError, match=f"^a host name has {len(host)} characters, at most 253 are allowed$"):
        read_url(url.format(host))


@pytest.mark.parametrize("url", [f"http://{LONGEST}/", f"http://me:{'x' * 4_000}@{LONGEST}:8080/", "http://[fe80::1]/"])
def test_the_longest_name_is_one(url: str) -> None:
    assert len(LONGEST) == HOST
    assert str(read_url(url)) == url


@pytest.mark.parametrize("url", [f"/a//{'b' * 300}", f"a//{'ü' * 300}", f"mailto:{'ü' * 300}", f"?q=//{'b' * 300}"])
def test_only_a_host_is_as_short_as_a_name(url: str) -> None:
    check_authority(url)


def test_a_name_is_measured_again_once_it_is_encoded() -> None:
    with pytest.raises(ValueError, match="a host name has 430 characters"):
        read_url(f"http://{'ü-.' * 42}ü--")
    with pytest.raises(ValueError, match="a host name has 254 characters"):
        check_name("a" * 254)


def test_nothing_else_beside_the_host_is_normalized_however_long_it_is() -> None:
    with pytest.raises(ValueError, match=f"^the authority of a URL has {len(MARKS) + 2} characters, at most 1024 are"):
        read_url(f"http://{MARKS}@a/")
