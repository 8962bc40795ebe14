from __future__ import annotations

import pytest

from spyweb.errors import OpError
from spyweb.lua.worker.crypto import FALSE, compute
from spyweb.ops.crypto import FUNCTIONS
from tests.fakes.ops import ask, make_call

LONG = bytes(range(256)) * 5_000


@pytest.mark.parametrize("name", [b"sha256", b"sha512", b"sha1", b"md5", b"base64_encode"])
async def test_a_long_text_gives_what_the_worker_gives(name: bytes) -> None:
    assert await ask(make_call(), "_crypto", name, LONG) == [compute(name, LONG)]


async def test_the_others_do_too() -> None:
    call = make_call()
    assert await ask(call, "_crypto", b"hmac_sha256", LONG, b"key") == [compute(b"hmac_sha256", b"key", LONG)]
    encoded = compute(b"base64_encode", LONG)
    assert await ask(call, "_crypto", b"base64_decode", encoded) == [LONG]
    assert await ask(call, "_crypto", b"base64_decode", LONG) == [None]
    assert compute(b"base64_decode", LONG) == FALSE


async def test_another_function_is_refused() -> None:
    assert b"uuid" not in FUNCTIONS
    with pytest.raises(OpError, match="there is no such function of crypto"):
        await ask(make_call(), "_crypto", b"uuid", b"")
