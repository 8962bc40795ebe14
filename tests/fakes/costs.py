"""Measure what hostile texts cost, at two sizes: every op with each of its arguments, and every other entry.

Run as a child, `python -m tests.fakes.costs FOLDER`, under limits of its own: a call that goes wrong takes minutes, or
gigabytes.  It writes a line of JSON for each case as soon as it is measured.
"""

from __future__ import annotations

import asyncio
import json
import re
import resource
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from encodings.aliases import aliases
from functools import partial
from itertools import chain
from pathlib import Path
from time import process_time

from yarl import URL

from spyweb.clock import RealClock
from spyweb.daemon.subjects import ROUTES
from spyweb.errors import FetchError, SpywebError
from spyweb.extraction.extractor import open_extractor
from spyweb.logs.output import printable
from spyweb.model import Durability
from spyweb.ops import catalog
from spyweb.ops.arguments import parse_number
from spyweb.ops.dispatcher import OpDispatcher
from spyweb.ops.network.client import open_client
from spyweb.ops.network.request import Fetch, Http
from spyweb.ops.op import Operation
from spyweb.schedules.cron import parse_cron
from spyweb.settings.load import load_settings
from spyweb.settings.sections import HttpSettings
from spyweb.settings.units import parse_duration, parse_size
from spyweb.specs.discover import scan
from spyweb.store.interchange.lines import parse_line
from spyweb.store.interchange.value_json import decode_value
from spyweb.store.patterns import compile_pattern
from spyweb.store.sqlite.store import open_store
from spyweb.web.app import Site
from spyweb.web.pages.page import ACTIONS
from spyweb.web.serve import serve_app
from tests.fakes.client import content_of
from tests.fakes.clock import FakeClock
from tests.fakes.daemon_socket import serve_tcp
from tests.fakes.dashboard import make_dashboard_service
from tests.fakes.endpoints import serve as serve_endpoints
from tests.fakes.ops import make_call, make_world

SMALL = 6_000
TIMES = 4  # larger is the second size
CPU_SECONDS, MEMORY = 120, 2 << 30

Text = Callable[[int], bytes]

TEXTS: Mapping[str, Text] = {
    "digits": lambda n: b"1" * n + b"x",
    "zeros": lambda n: b"0" * n + b"x",
    "hex": lambda n: b"0x" + b"f" * n + b"x",
    "stars": lambda n: b"*a" * (n // 2),
    "questions": lambda n: b"?*" * (n // 2),
    "chinese": lambda n: "中".encode() * (n // 3),
    "combining": lambda n: "a\u0301".encode() * (n // 3),
    "controls": lambda n: b"\1" * n,
    "no utf-8": lambda n: b"\xff" * n,
    "quotes": lambda n: b'"' * n,
    "percents": lambda n: b"%" * n,
    "dots": lambda n: b"a." * (n // 2),
    "brackets": lambda n: b"[[" * (n // 2),
    "parentheses": lambda n: b"(" * n,
    "braces": lambda n: b"{}" * (n // 2),
    "spaces": lambda n: b" " * n + b"x",
    "lines": lambda n: b"\r\n" * (n // 2) + b"x",
    "slashes": lambda n: b"../" * (n // 3),
    "host": lambda n: b"http://" + "中".encode() * (n // 3) + b"/",
    "marks": lambda n: b"http://a" + "\u0301\u0327".encode() * (n // 4) + b"@example.com/",
    "labels": lambda n: b"http://" + b"a." * (n // 2) + b"b/",
    "query": lambda n: b"http://example.com/?" + b'"' * n,
    "path": lambda n: b"http://example.com/" + b"../" * (n // 3),
    "user": lambda n: b"http://" + b"a:@" * (n // 3) + b"example.com/",
    "numbers in SQL": lambda n: b"SELECT 1 WHERE 1 IN (" + b"1," * (n // 2) + b"1)",
    "parentheses in SQL": lambda n: b"SELECT " + b"(" * (n // 2) + b"1" + b")" * (n // 2),
    "comments in SQL": lambda n: b"SELECT 1 " + b"/*" * (n // 2),
}

Table = dict[object, object]
Make = Callable[[int], object]

TABLES: Mapping[str, Callable[[bytes, int], object]] = {
    "text in a list": lambda text, n: [text],
    "many texts": lambda text, n: [text[:8]] * n,
    "many keys": lambda text, n: {b"%d" % i: text[:8] for i in range(n)},
    "long key": lambda text, n: {text: b"v"},
    "many lists": lambda text, n: [[] for _ in range(n)],
    "many tables": lambda text, n: [{b"a": text[:8]} for _ in range(n)],
    "numbers": lambda text, n: [1.5] * n,
}
IN_TABLES = ("digits", "dots", "no utf-8")

# What the other arguments are, by the name of the parameter, or else by its kind.
USUAL: Mapping[str, object] = {
    "url": b"http://example.com/", "sql": b"SELECT 1", "string": b"k", "integer": 1, "number": 1, "value": b"v",
    "table": {}, "host": b"example.com",
}  # fmt: skip

# What a table of options holds beside the hostile one, and which may be that.
OPTIONS: Mapping[str, tuple[Table, tuple[bytes, ...]]] = {
    "http_request": (
        {b"url": b"http://example.com/"},
        (b"url", b"method", b"body", b"headers", b"proxy", b"timeout", b"query"),
    ),
    "state.update": ({b"scope": b"s", b"key": b"k", b"ops": []}, (b"scope", b"key", b"ops")),
}
UPDATES = (b"set", b"merge", b"increment", b"decrement", b"append", b"remove")


@dataclass(frozen=True)
class Case:
    name: str
    at: Callable[[int], Awaitable[object]]  # do it at this size


class HurriedClock(FakeClock):
    """A clock on which every sleep ends at once."""

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)


def cases_of(name: str, texts: Mapping[str, Text], at: Callable[[Text, int], Awaitable[object]]) -> Iterator[Case]:
    for what, text in texts.items():
        yield Case(f"{name} {what}", partial(at, text))


def op_cases(host: OpDispatcher) -> Iterator[Case]:
    operations = catalog.CATALOGUE
    for operation in operations.values():
        for position, parameter in enumerate(operation.parameters):
            for what, make in arguments_for(parameter.reader.kind):
                yield op_case(host, operation, position, what, make)
    for what, text in TEXTS.items():
        for name, (usual, fields) in OPTIONS.items():
            for field in fields:
                make = partial(options_with, usual, field, text)
                yield op_case(host, operations[name], 0, f"{field.decode()}: {what}", make)
        for update in UPDATES:
            make = partial(update_at, update, text)
            yield op_case(host, operations["state.update"], 0, f"{update.decode()} at {what}", make)


def arguments_for(kind: str) -> Iterator[tuple[str, Make]]:
    if kind != "table":
        yield from TEXTS.items()
    if kind in ("table", "value"):
        for name, table in TABLES.items():
            for text in IN_TABLES:
                yield f"{name}, {text}", partial(table_of, table, TEXTS[text])


def table_of(table: Callable[[bytes, int], object], text: Text, n: int) -> object:
    return table(text(n), n)


def options_with(usual: Table, field: bytes, text: Text, n: int) -> Table:
    return {**usual, field: text(n)}


def update_at(update: bytes, text: Text, n: int) -> Table:
    return {b"scope": b"s", b"key": b"k", b"ops": [{b"type": update, b"path": text(n), b"value": 1, b"by": 1}]}


def op_case(host: OpDispatcher, operation: Operation, position: int, what: str, make: Make) -> Case:
    async def at(n: int) -> None:
        arguments = [USUAL.get(each.name, USUAL[each.reader.kind]) for each in operation.parameters]
        arguments[position] = make(n)
        with suppress(SpywebError, TimeoutError):
            await asyncio.wait_for(host.op(operation.name, arguments), 5)

    return Case(f"{operation.name}({operation.parameters[position].name} = {what})", at)


# -- What is read where it comes in

READERS: Mapping[str, Callable[[bytes], object]] = {
    "number": parse_number,
    "pattern": compile_pattern,
    "duration": lambda text: parse_duration(text.decode("latin-1")),
    "size": lambda text: parse_size(text.decode("latin-1")),
    "cron": lambda text: parse_cron(text.decode("latin-1")),
    "line of the log": lambda text: printable(text.decode("utf-8", "replace")),
    "line of an import": parse_line,
    "value in JSON": decode_value,
}


async def read_once(read: Callable[[bytes], object], text: Text, n: int) -> None:
    with suppress(SpywebError, ValueError):
        read(text(n))


NESTED: Mapping[str, Text] = {
    "arrays in JSON": lambda n: b"[" * n,
    "objects in JSON": lambda n: b'{"a":' * (n // 5),
    "numbers in JSON": lambda n: b"[" + b"1," * (n // 2) + b"1]",
    "empty arrays in JSON": lambda n: b"[" + b"[]," * (n // 3) + b"1]",
    "digits in JSON": lambda n: b'{"value": ' + b"1" * n + b"}",
}


# What begins something in Lua, and never ends it.
PIECES = (
    b"a,", b"function ", b"function a(", b"local a,", b"local run ", b"'", b'"\\', b"--[", b"a.b ", b"a=", b"a = {} ",
    b"require ", b"for a,", b"<const", b"::", b"{ ", b"end ", b'task("a"(', b'task("a"):depends_on(',
    b'task("a"):comand()', b"t{depends_on={",
)  # fmt: skip


def repeated(piece: bytes, n: int) -> bytes:
    return piece * (n // len(piece))


# Beside the texts above, what stands in files.
LINES: Mapping[str, Text] = {
    "mark": lambda n: b"-- ///" + b" " * n + b"\r" + b"x",
    "mark with blanks": lambda n: b"-- /// job" + b" \t" * (n // 2) + b"x",
    "dotted key": lambda n: b"a." * (n // 2) + b"a=1",
    "dotted table": lambda n: b"[" + b"a." * (n // 2) + b"a]",
    "nested arrays": lambda n: b"a = " + b"[" * n,
    "nested tables": lambda n: b"a = " + b"{a=" * (n // 3),
    "underscores": lambda n: b"x = 1" + b"_" * n + b"y",
    "open quotes": lambda n: b"function run() end run()" + b'"\\"' * (n // 3),
    "open long strings": lambda n: b"x = " + b"[=" * (n // 2),
    "comments": lambda n: b"--[[" * (n // 4),
    "keys": lambda n: b"\n".join(b"a%d = 1" % i for i in range(n // 8)),
    "tables": lambda n: b"\n".join(b"[a%d]\nb = 1" % i for i in range(n // 12)),
    "arrays of tables": lambda n: b"[[jobs]]\n" * (n // 9),
    "names": lambda n: b"\n".join(b"foo%d()" % i for i in range(n // 8)),
    "long name": lambda n: b"ab" * (n // 2) + b" = 1",
    "quotes before a dotted key": lambda n: b'"\\"' * (n // 5) + b"a." * (n // 5) + b"a=1",
    "dots in a string": lambda n: b'x = [\n"""\n' + b"a." * (n // 2) + b'a = 1\n"""]',
    "fields": lambda n: b"fields = [%s]" % b",".join(b'"f%d:a"' % i for i in range(n // 10)),
    "conditions": lambda n: b"".join(b'[[on]]\nwhen = "w%d"\n' % i for i in range(n // 20)),
    "types": lambda n: b"function " + b"a." * (n // 2) + b"b(" + b"x: y, " * 40,
    "marks": lambda n: b"-- /// a\r" * (n // 9),
    **{f"many of {piece.decode()}": partial(repeated, piece) for piece in PIECES},
}

FILES: Mapping[str, Callable[[bytes], bytes]] = {
    "jobs/x.lua": lambda text: text,
    "jobs/y.lua": lambda text: (
        b'-- /// job\n-- every = "1h"\n' + b"-- " + text.replace(b"\n", b"\n-- ") + b"\n-- ///\n"
    ),
    "jobs/z/config.toml": lambda text: b'url = "http://example.com/"\nselector = "a"\n' + text,
    "jobs/z/hooks.lua": lambda text: text,
    "jobs.toml": lambda text: text,
    "config.toml": lambda text: text,
}


async def scan_once(root: Path, file: str, wrap: Callable[[bytes], bytes], text: Text, n: int) -> None:
    path = root / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(wrap(text(n)))
    with suppress(SpywebError):
        scan(root, load_settings(root, environ={}, flags={}))
    path.unlink()


# -- The network, both ways

MANY = 20  # times more of what comes one by one


def with_header(first: bytes, name: bytes, text: Text, n: int) -> bytes:
    return b"%s\r\n%s: %s\r\n\r\n" % (first, name, text(n))


def with_path(text: Text, n: int) -> bytes:
    return b"GET /%s HTTP/1.1\r\nHost: localhost\r\n\r\n" % text(n)


ANSWERS: Mapping[str, Text] = {
    "status line": lambda n: b"HTTP/1.1 200 " + b"x" * n + b"\r\n\r\n",
    "blank lines": lambda n: b"\r\n" * (MANY * n // 2),
    "interim answers": lambda n: b"HTTP/1.1 103 Early\r\n\r\n" * (MANY * n // 22),
    "headers": lambda n: b"HTTP/1.1 200 OK\r\n" + b"".join(b"a%d: b\r\n" % i for i in range(n // 8)) + b"\r\n",
    "headers of one name": lambda n: b"HTTP/1.1 200 OK\r\n" + b"a: bbbb\r\n" * (n // 9) + b"\r\n",
    "encodings": lambda n: b"HTTP/1.1 200 OK\r\nContent-Encoding: " + b"br," * (n // 3) + b"br\r\n\r\n",
    "cookies": lambda n: b"HTTP/1.1 200 OK\r\n" + b"Set-Cookie: a=b; c\r\n" * (n // 20) + b"\r\n",
    "chunks": lambda n: b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\na\r\n" * (MANY * n // 6),
    "chunk extension": lambda n: b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;" + b"a" * n,
    **{
        f"{name.decode()}: {what}": partial(with_header, b"HTTP/1.1 302 Found", name, text)
        for name in (b"Location", b"Content-Type", b"Retry-After", b"Content-Length", b"Transfer-Encoding")
        for what, text in TEXTS.items()
        if what != "lines"
    },
}  # fmt: skip

REQUESTS: Mapping[str, Text] = {
    "blank lines": lambda n: b"\r\n" * (MANY * n // 2),
    "headers": lambda n: b"GET /healthz HTTP/1.1\r\n" + b"".join(b"a%d: b\r\n" % i for i in range(n // 8)) + b"\r\n",
    "chunks": lambda n: b"POST /api/public/x HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    + b"1\r\na\r\n" * (MANY * n // 6)
    + b"0\r\n\r\n",
    "parameters": lambda n: b"GET /api/jobs?" + b"a=b&" * (MANY * n // 4) + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
    **{
        f"path: {what}": partial(with_path, text)
        for what, text in TEXTS.items()
        if what not in ("lines", "spaces")
    },
    **{
        f"{name.decode()}: {what}": partial(with_header, b"GET /api/jobs HTTP/1.1", name, text)
        for name in (b"Host", b"Cookie", b"Origin", b"X-SpyWeb-Key", b"Accept-Encoding", b"Range", b"Content-Type")
        for what, text in TEXTS.items()
        if what != "lines"
    },
}  # fmt: skip


async def fetch_once(http: Http, server: RawServer, text: Text, n: int) -> None:
    server.answer = text(2 * n)
    with suppress(FetchError):
        await http.fetch(Fetch(url=URL(server.url), timeout_s=2, largest=1 << 20))


# Every address that reads a body: the routes, the forms of the dashboard, and on another port the project's endpoints.
DOORS = [
    *((each.method, each.path) for each in ROUTES if each.body is not None),
    *(("POST", f"/{each.path}") for each in ACTIONS),
]
ENDPOINTS = [("POST", "/api/v/x"), ("POST", "/api/public/x")]


def door_cases(doors: list[tuple[str, str]], port: int) -> Iterator[Case]:
    """Send each door a body in every codec that a client may name: punycode takes time that grows with the square."""
    for method, path in doors:
        place = re.sub("{.*?}", "1", path.replace("{job}", "prices"))
        for codec in aliases:
            yield Case(f"{method} {path} in {codec}", partial(knock, port, f"{method} {place}", codec))


async def knock(port: int, place: str, codec: str, n: int) -> None:
    """Send a body in this codec.  Raises AssertionError where the answer is that the server has failed, or none."""
    body = b"key=" + b"a" * n + b"-" + b"a" * n
    head = f"{place}?namespace=global&key=k HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    kind = f"Content-Type: application/x-www-form-urlencoded; charset={codec}\r\nContent-Length: {len(body)}\r\n\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"{head}{kind}".encode() + body)
    answer = await reader.read()
    assert answer[9:10] in (b"2", b"3", b"4"), (place, codec, answer)
    writer.close()


async def request_once(port: int, text: Text, n: int) -> None:
    with suppress(OSError, TimeoutError):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(text(2 * n))
        writer.write_eof()
        await asyncio.wait_for(reader.read(), 2)
        writer.close()


class RawServer:
    """Sends the same bytes to every client, and hangs up."""

    answer = b""
    url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(self.answer)
            await writer.drain()
        writer.close()


@asynccontextmanager
async def open_raw_server() -> AsyncIterator[RawServer]:
    raw = RawServer()
    async with await asyncio.start_server(raw.serve, "127.0.0.1") as server:
        raw.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        yield raw


# -- The measurement


async def measure(case: Case) -> Mapping[str, object]:
    """Measure the CPU seconds of this process at both sizes, up to three times where the larger seems too slow."""
    for _ in range(3):
        small, large = await seconds(case, SMALL), await seconds(case, SMALL * TIMES)
        if not is_dear(small, large):
            break
    return {"case": case.name, "small": round(small, 4), "large": round(large, 4)}


async def seconds(case: Case, n: int) -> float:
    started = process_time()
    await case.at(n)
    return process_time() - started


def is_dear(small: float, large: float) -> bool:
    """Return whether the cost grew faster than the input: half of what a square would take is the bound."""
    return large > 2 * TIMES * small + 0.05


async def main(folder: Path) -> None:
    clock = HurriedClock()
    for name in ("project", "files"):
        (folder / name).mkdir()
    store = await open_store(folder / "spyweb.db", clock=clock, durability=Durability.NORMAL)
    async with (
        AsyncExitStack() as leaving,
        open_extractor(RealClock()) as extractor,
        (world := make_world(store=store, clock=clock, root=folder / "files", extractor=extractor)).sql,
        open_client(HttpSettings(), RealClock()) as http,
        open_raw_server() as server,
        serve_endpoints() as served,
        serve_tcp(make_dashboard_service()) as dashboard,
        serve_app(
            content_of(make_dashboard_service(), Site(endpoints=served.endpoints)), host="127.0.0.1", port=0
        ) as content,
    ):
        leaving.push_async_callback(store.close)  # its threads would hold up the exit after a failure
        for case in chain(
            op_cases(OpDispatcher(make_call(world))),
            *(cases_of(f"{name}:", {**TEXTS, **NESTED}, partial(read_once, read)) for name, read in READERS.items()),
            *(
                cases_of(f"{file}:", {**TEXTS, **LINES}, partial(scan_once, folder / "project", file, wrap))
                for file, wrap in FILES.items()
            ),
            cases_of("an answer's", ANSWERS, partial(fetch_once, http, server)),
            cases_of("a request's", REQUESTS, partial(request_once, dashboard.port)),
            door_cases(DOORS, dashboard.port),
            door_cases(ENDPOINTS, content.port),
        ):
            print(json.dumps({"begin": case.name}), flush=True)  # noqa: T201 - what the test reads
            print(json.dumps(await measure(case)), flush=True)  # noqa: T201


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    asyncio.run(main(Path(sys.argv[1])))
