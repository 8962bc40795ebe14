"""Pages and files on their way: compressed, and not sent again to whoever has them."""

from __future__ import annotations

import gzip
import re

from aiohttp import ClientSession
from backports import zstd

from tests.fakes.client import Client
from tests.fakes.dashboard import dashboard, get_page


async def raw(client: Client, path: str, accepted: str) -> tuple[str, bytes]:
    async with ClientSession(auto_decompress=False) as session:
        headers = {"Accept": "text/html", "Accept-Encoding": accepted}
        async with session.get(client.make_url(path), headers=headers) as answer:
            return answer.headers.get("Content-Encoding", ""), await answer.read()


async def test_a_page_is_compressed_as_its_reader_likes_it() -> None:
    async with dashboard() as client:
        encoding, plain = await raw(client, "/", "identity")
        assert encoding == ""
        encoding, zipped = await raw(client, "/", "gzip, deflate")
        assert (encoding, len(gzip.decompress(zipped))) == ("gzip", len(plain))
        encoding, better = await raw(client, "/", "gzip, br, zstd")
        assert (encoding, len(zstd.decompress(better))) == ("zstd", len(plain))
        assert len(zipped) < len(plain) / 3


async def test_a_file_is_kept_for_ever_and_told_apart_by_its_address() -> None:
    async with dashboard() as client:
        _, page = await get_page(client, "/")
        address = re.findall(r'href="([^"]*style.css)"', page)[0]
        async with client.get(address) as answer:
            assert answer.content_type == "text/css"
            assert "immutable" in answer.headers["Cache-Control"]
            tag = answer.headers["ETag"]
        async with client.get(address, headers={"If-None-Match": tag}) as answer:
            assert (answer.status, await answer.read()) == (304, b"")
        async with client.get("/static/other/style.css") as answer:
            assert answer.headers["Cache-Control"] == "no-cache"
        for missing in ("/static/x/nothing.css", "/static/x/..%2Frender.py"):
            assert (await get_page(client, missing))[0] == 404


async def test_a_file_comes_compressed() -> None:
    async with dashboard() as client:
        encoding, zipped = await raw(client, "/static/x/live.js", "gzip")
        assert encoding == "gzip"
        assert b"EventSource" in gzip.decompress(zipped)
