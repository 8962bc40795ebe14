"""Send pages and the files that they need: with headers that forbid whatever they do not use, and compressed."""

from __future__ import annotations

import asyncio
import gzip
import sys

from aiohttp import web

from spyweb.dashboard.static_files import static_files
from spyweb.web.answer import WholeAnswer

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

LONG = 8192  # bytes of a page from which on it is compressed in a thread
ZSTD_LEVEL, GZIP_LEVEL = 6, 6
FOREVER = "public, max-age=31536000, immutable"  # another content has another address

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}
# Nothing but the script that a page itself names runs: not even what lies at this origin.
POLICY = "default-src 'self'; script-src 'nonce-{}'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
PAGE_HEADERS = {**HEADERS, "Cache-Control": "private, no-cache", "Vary": "Accept-Encoding, Cookie"}


async def send_page(request: web.Request, text: str, nonce: str, status: int = 200) -> web.Response:
    """Answer with a page, compressed as its reader likes it; its scripts are those with this nonce."""
    body = text.encode("utf-8", "replace")
    encoding = encoding_of(request)
    if encoding:
        body = await asyncio.to_thread(compress, body, encoding) if len(body) >= LONG else compress(body, encoding)
    headers = {**PAGE_HEADERS, "Content-Security-Policy": POLICY.format(nonce)}
    if encoding:
        headers["Content-Encoding"] = encoding
    return WholeAnswer(body=body, status=status, content_type="text/html", charset="utf-8", headers=headers)


def encoding_of(request: web.Request) -> str:
    """Return how an answer may be compressed; nothing where it may not."""
    accepted = {
        part.partition(";")[0].strip() for part in request.headers.get("Accept-Encoding", "").lower().split(",")
    }
    return next((encoding for encoding in ("zstd", "gzip") if encoding in accepted), "")


def compress(body: bytes, encoding: str) -> bytes:
    if encoding == "zstd":
        return zstd.compress(body, ZSTD_LEVEL)
    return gzip.compress(body, GZIP_LEVEL, mtime=0)


async def serve_static(request: web.Request) -> web.Response:
    """Serve a file that pages need; whoever has it already is told so."""
    files = await asyncio.to_thread(static_files)
    file = files.find(request.match_info["name"])
    if file is None:
        raise web.HTTPNotFound
    is_current = request.match_info["version"] == files.version
    tag = f'"{file.tag}"'
    headers = {
        **HEADERS,
        "ETag": tag,
        "Vary": "Accept-Encoding",
        "Cache-Control": FOREVER if is_current else "no-cache",
    }
    if tag in request.headers.get("If-None-Match", ""):
        return web.Response(status=304, headers=headers)
    body = file.body
    if "gzip" in request.headers.get("Accept-Encoding", ""):
        body, headers["Content-Encoding"] = file.zipped, "gzip"
    return WholeAnswer(body=body, content_type=file.media, charset="utf-8", headers=headers)
