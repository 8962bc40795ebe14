"""The ops tcp_probe, tls_probe, dns_query and ping: what a server answers below HTTP."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

from yarl import URL

from spyweb.errors import FetchError, NotPermitted, OpError
from spyweb.limits import HOST, too_large
from spyweb.ops.arguments import Int, Mismatch, Read, Text, options_of, read_flag, read_positive, read_text
from spyweb.ops.network.request import Probe
from spyweb.ops.op import NET, OpEffect, OpFamily, op, refuse_in_dry_run
from spyweb.ops.world import Call
from spyweb.permissions.hosts import ANY_PORT, HIGHEST_PORT, split_port

FAMILY = OpFamily(name="probes", errors="A failure returns nil and a message.")

OR = "answer, string? message"
HTTPS, DNS = 443, 53
LARGEST_TEXT, USUALLY_READ = 4096, 1024  # bytes
LONGEST_TYPE = 16  # characters

Outcome: TypeAlias = tuple[dict[str, object] | None, str | None]  # what was found, or why nothing was
Options: TypeAlias = dict[str, Any]


def _at_most(most: int, make: type[int] | type[float] = float) -> Read:
    def read(value: object) -> float:
        number = read_positive(value)
        if number > most or make(number) != number:
            raise Mismatch(f"{'an integer' if make is int else 'a number'} up to {most} expected")
        return make(number)

    return read


def _short(value: object) -> bytes:
    if len(text := read_text(value)) > LARGEST_TEXT:
        raise Mismatch(too_large("the text", len(text), LARGEST_TEXT))
    return text


def _server(value: object) -> tuple[str, int]:
    try:
        host, port = split_port(_short(value).decode())
        return name_of(host.encode()), DNS if port == ANY_PORT else port
    except (FetchError, ValueError) as error:
        raise Mismatch(str(error)) from None


TcpOptions = Annotated[
    Options, options_of(send=_short, read=_at_most(LARGEST_TEXT, int), tls=read_flag, timeout=_at_most(60))
]
TlsOptions = Annotated[Options, options_of(timeout=_at_most(60))]
DnsOptions = Annotated[Options, options_of(server=_server, timeout=_at_most(60))]
PingOptions = Annotated[Options, options_of(count=_at_most(10, int), timeout=_at_most(10))]


@op(needs=NET, effect=OpEffect.LOOKS, types=f"(host: string, port: integer, options?: TcpOptions): TcpAnswer? {OR}")
async def tcp_probe(call: Call, host: Text, port: Int, options: TcpOptions | None = None) -> Outcome:
    """Connect to a TCP server, send and read a little if wanted; return what it answered, or nil and a message."""
    how = {"timeout": 10, "read": USUALLY_READ if options and "send" in options else 0, **(options or {})}
    if call.is_dry and "send" in how:
        refuse_in_dry_run(call, "tcp_probe with send", ())
    return await _answer(call, "tcp_probe", host, port, how)


@op(needs=NET, effect=OpEffect.NONE, types=f"(host: string, port?: integer, options?: TlsOptions): Certificate? {OR}")
async def tls_probe(call: Call, host: Text, port: Int = HTTPS, options: TlsOptions | None = None) -> Outcome:
    """Return the certificate of a TLS server, trusted or not, as a table; or nil and a message."""
    usual = call.world.http.settings.timeout_ms / 1000
    return await _answer(call, "tls_probe", host, port, {"timeout": usual, **(options or {})})


@op(needs=NET, effect=OpEffect.NONE, types=f"(name: string, kind: string, options?: DnsOptions): DnsAnswer? {OR}")
async def dns_query(call: Call, name: Text, kind: Text, options: DnsOptions | None = None) -> Outcome:
    """Ask a name server for the records of a name, such as `A` or `MX`; return its answer, or nil and a message."""
    how = {"timeout": 5, "type": kind[:LONGEST_TYPE].decode("ascii", "replace").upper(), **(options or {})}
    how["server"], port = how.get("server", ("", DNS))
    return await _answer(call, "dns_query", name, port, how)


@op(needs=NET, effect=OpEffect.NONE, types=f"(host: string, options?: PingOptions): PingAnswer? {OR}")
async def ping(call: Call, host: Text, options: PingOptions | None = None) -> Outcome:
    """Send ICMP echo requests to a host; return the loss and the latency, or nil and a message."""
    return await _answer(call, "ping", host, ANY_PORT, {"count": 3, "timeout": 1, **(options or {})})


async def _answer(call: Call, function: str, host: bytes, port: int, how: Options) -> Outcome:
    """Carry a probe out.  Where this machine's name servers are asked, the name is what must be permitted."""
    try:
        probe, gate = Probe(function=function, host=name_of(host), port=port, **how), call.gate(function)
        if not (0 < port <= HIGHEST_PORT or function == "ping"):
            raise FetchError("connect", f"not a port: {port}")
        gate.check(probe.server or probe.host, port)
        return await call.world.http.probe(probe, gate), None
    except NotPermitted as error:
        raise OpError(str(error)) from None
    except FetchError as error:
        return None, str(error)


def name_of(host: bytes) -> str:
    """Return a host's name in the form that the network uses.  Raises FetchError."""
    try:
        given = host.decode("utf-8").strip("[]")
        name = URL.build(scheme="https", host=given).raw_host if len(given) <= HOST else None
    except ValueError:
        name = None
    if not name or not name.isprintable() or set(name) & set(" /@?#"):
        raise FetchError("dns", f"not a host name: {host[:80].decode('utf-8', 'backslashreplace')!r}")
    return name
