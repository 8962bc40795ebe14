"""Serve the project's own pages: files of its folder ui/, at the root of the site.

An address without an extension that names no file gets index.html, as the router of a page expects.  No address leads
out of the folder, and none to a file whose name begins with a dot.
"""

from __future__ import annotations

import asyncio
import mimetypes
from pathlib import Path
from urllib.parse import unquote

from aiohttp import web

from spyweb.web.access.cookies import DASHBOARD_PORT
from spyweb.web.access.guard import API

FOLDER, INDEX = "ui", "index.html"
UI: web.AppKey[Path] = web.AppKey("folder of the pages")

BINARY = "application/octet-stream"
# What the machine's own table may lack or, on some, gets wrong.
TYPES = {
    ".css": "text/css", ".html": "text/html", ".ico": "image/x-icon", ".js": "text/javascript",
    ".json": "application/json", ".map": "application/json", ".mjs": "text/javascript", ".svg": "image/svg+xml",
    ".txt": "text/plain", ".wasm": "application/wasm", ".webmanifest": "application/manifest+json",
    ".webp": "image/webp", ".woff": "font/woff", ".woff2": "font/woff2", ".xml": "text/xml",
}  # fmt: skip
UTF_8 = ("text/", "application/json", "application/manifest+json")


async def serve_file(request: web.Request) -> web.StreamResponse:
    if request.path.startswith(API):
        raise web.HTTPNotFound
    found = await asyncio.to_thread(find_file, request.app[UI], request.rel_url.raw_path)
    if found is None:
        port = request.app.get(DASHBOARD_PORT)
        raise web.HTTPNotFound(text=f"there is no such page; the dashboard is on port {port}" if port else None)
    headers = {"Content-Type": type_of(found), "Cache-Control": "no-cache", "X-Content-Type-Options": "nosniff"}
    return web.FileResponse(found, headers=headers)


def find_file(folder: Path, raw_path: str) -> Path | None:
    """Return the file that a percent-encoded path of a request means."""
    parts = [unquote(part, errors="surrogateescape") for part in raw_path.split("/") if part]
    if any(part.startswith(".") or {"/", "\\", "\0"} & set(part) for part in parts):
        return None
    found = _file_in(folder, parts) or _file_in(folder, [*parts, INDEX])
    if found is None and not (parts and "." in parts[-1]):
        found = _file_in(folder, [INDEX])
    return found


def type_of(path: Path) -> str:
    kind = TYPES.get(path.suffix.lower()) or mimetypes.guess_type(path.name, strict=False)[0] or BINARY
    return f"{kind}; charset=utf-8" if kind.startswith(UTF_8) else kind


def _file_in(folder: Path, parts: list[str]) -> Path | None:
    """Return the file, if it is in the folder: links are followed as long as they stay inside."""
    try:
        inside = folder.resolve(strict=True)
        path = inside.joinpath(*parts).resolve(strict=True)
    except (OSError, RuntimeError, ValueError):  # RuntimeError: a loop of links
        return None
    return path if path.is_relative_to(inside) and path.is_file() else None


# Not below /api/: the router would offer them where another method is wrong.
UI_ROUTES = [web.get("/{path:(?!api/).*}", serve_file)]
