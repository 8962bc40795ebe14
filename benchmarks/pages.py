"""Serve a small web site, a page of thirty items under any path: python -m benchmarks.pages"""

from __future__ import annotations

from aiohttp import web

from benchmarks.servers import serve

ITEMS = 30
ITEM = """
<article class="item" id="item-{0}">
  <h2><a class="title" href="/articles/{0}">Article number {0} about something that matters</a></h2>
  <p class="summary">A paragraph of text that says a little more about article {0}, as such pages do.</p>
  <span class="price">{0}.99</span> <time datetime="2026-11-{0:02d}">a day in November</time>
</article>
"""
PAGE = f"""<!doctype html><html><head><meta charset="utf-8"><title>Articles</title></head><body>
<nav><a href="/">home</a> <a href="/about">about</a></nav>
<main>{"".join(ITEM.format(number) for number in range(1, ITEMS + 1))}</main></body></html>
""".encode()


async def answer(_request: web.Request) -> web.Response:
    return web.Response(body=PAGE, content_type="text/html", charset="utf-8")


if __name__ == "__main__":
    serve("/{path:.*}", answer)
