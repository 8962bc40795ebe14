from __future__ import annotations

import base64
import hashlib
import hmac
import re
import subprocess
import sys
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spyweb.lua.worker.crypto import FALSE, TRUE, compute


@given(st.binary(max_size=300), st.binary(max_size=300))
def test_it_computes_what_pythons_own_modules_do(data: bytes, key: bytes) -> None:
    for name in ("sha256", "sha512", "sha1", "md5"):
        assert compute(name.encode(), data) == hashlib.new(name, data).hexdigest().encode()
    assert compute(b"hmac_sha256", key, data) == hmac.new(key, data, "sha256").hexdigest().encode()
    encoded = compute(b"base64_encode", data)
    assert encoded == base64.b64encode(data)
    assert compute(b"base64_decode", encoded) == data
    assert compute(b"equal", data, key) == (TRUE if data == key else FALSE)


@pytest.mark.parametrize("text", [b"a", b"YQ", b"YQ=", b"Y Q==", b"YQ==x", b"=", b"Y-_=", b"\xff"])
def test_what_is_not_base64_is_told(text: bytes) -> None:
    assert compute(b"base64_decode", text) == FALSE


def test_base64_may_be_broken_into_lines() -> None:
    assert compute(b"base64_decode", b"YWJj\r\nZGVm\n") == b"abcdef"
    assert compute(b"base64_decode", b"") == b""


def test_a_uuid_is_a_random_one() -> None:
    made = {compute(b"uuid") for _ in range(100)}
    assert len(made) == 100
    for text in made:
        assert isinstance(text, bytes)
        read = uuid.UUID(text.decode())
        assert (read.version, read.variant, str(read)) == (4, uuid.RFC_4122, text.decode())


def test_a_random_string_has_letters_and_digits_alike() -> None:
    text = compute(b"random_string", 100_000)
    assert isinstance(text, bytes)
    assert re.fullmatch(rb"[0-9A-Za-z]{100000}", text)
    counts = [text.count(letter) for letter in set(text)]
    assert len(counts) == 62
    assert max(counts) < 1.25 * min(counts)
    assert compute(b"random_string", 0) == b""


def test_no_openssl_is_loaded_for_it() -> None:
    """In a zygote that would be memory of every worker."""
    program = "import sys, spyweb.lua.worker.crypto; assert not {'hashlib', '_hashlib', '_ssl'} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", program], check=True)
