"""Run the peers of monitors: urlwatch, and a hand-written loop."""

from __future__ import annotations

import asyncio
import hashlib
import json
import subprocess
import sys
import time
from pathlib import Path

import aiohttp
import aiosqlite
from selectolax.lexbor import LexborHTMLParser

FIELDS = {"title": ".title", "summary": ".summary", "price": ".price"}
AT_ONCE = 64  # checks under way
SCHEMA = "CREATE TABLE record (id INTEGER PRIMARY KEY, job TEXT, hash BLOB, json TEXT, UNIQUE (job, hash))"
URLWATCH_CONFIG = """
display: {new: true, error: true, unchanged: false}
report:
  text: {line_length: 75, details: true, footer: true}
  stdout: {enabled: true, color: false}
job_defaults: {all: {}, shell: {}, url: {}, browser: {}}
"""


async def plain_checks(address: str, root: Path, checks: int, jobs: int) -> float:
    """Return the seconds a check takes with aiohttp, selectolax and aiosqlite, each in one durable transaction."""
    async with aiohttp.ClientSession() as session, aiosqlite.connect(root / "plain.db", isolation_level=None) as store:
        await store.execute("PRAGMA journal_mode = WAL")
        await store.execute("PRAGMA synchronous = FULL")
        await store.execute(SCHEMA)
        gate, one_at_a_time = asyncio.Semaphore(AT_ONCE), asyncio.Lock()

        async def check(number: int) -> None:
            async with gate:
                job = f"job{number % jobs}"
                async with session.get(f"{address}/{job}") as response:
                    body = await response.read()
                rows = [(job, *row) for row in plain_extract(body)]
                async with one_at_a_time:
                    await store.execute("BEGIN IMMEDIATE")
                    await store.executemany("INSERT OR IGNORE INTO record (job, hash, json) VALUES (?, ?, ?)", rows)
                    await store.execute("COMMIT")

        await asyncio.gather(*(check(number) for number in range(jobs)))
        began = time.perf_counter()
        await asyncio.gather(*(check(number) for number in range(checks)))
        return (time.perf_counter() - began) / checks


def plain_extract(body: bytes) -> list[tuple[bytes, str]]:
    rows = []
    for item in LexborHTMLParser(body).css(".item"):
        fields = {name: _text(item.css_first(selector)) for name, selector in FIELDS.items()}
        text = json.dumps(fields)
        rows.append((hashlib.blake2b(text.encode(), digest_size=16).digest(), text))
    return rows


def _text(node: object) -> str:
    return str(node.text(strip=True)) if node is not None else ""  # type: ignore[attr-defined]  # selectolax's own


def urlwatch_checks(address: str, root: Path, jobs: int) -> float:
    """Return the seconds a check takes in a whole run of urlwatch over so many pages that it has seen before."""
    urls = [
        f'name: job{number}\nurl: {address}/job{number}\nfilter:\n  - css: ".item .title"\n  - html2text: re\n'
        for number in range(jobs)
    ]
    (root / "urls.yaml").write_text("---\n".join(urls))
    (root / "urlwatch.yaml").write_text(URLWATCH_CONFIG)
    files = {"urls": "urls.yaml", "config": "urlwatch.yaml", "cache": "cache.db", "hooks": "hooks.py"}
    flags = [word for name, file in files.items() for word in (f"--{name}", str(root / file))]
    for _ in range(2):
        began = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-m", "urlwatch.cli", *flags], capture_output=True, text=True, check=False
        )
        took = time.perf_counter() - began
    if done.returncode or done.stdout.strip():
        raise RuntimeError(f"urlwatch: {done.returncode} {done.stdout[-500:]} {done.stderr[-500:]}")
    return took / jobs
