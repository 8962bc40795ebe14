"""The messages of DNS, by dnspython, which is imported when it is first needed: call these in a thread."""

from __future__ import annotations

from typing import Any

from spyweb.errors import FetchError
from spyweb.ops.network.address_check import is_literal

UDP_SIZE = 1232  # bytes, which pass any network in one piece
TRUNCATED = 2  # a bit of the third byte; the highest says that it is an answer
MOST_SERVERS = 3  # as for the C library


def question_of(name: str, kind: str, server: str) -> tuple[Any, list[str]]:
    """Return a question about a name, or an address, and who is asked if not this server.  Raises FetchError."""
    from dns import exception, message, rdatatype, resolver, reversename

    try:
        wanted = rdatatype.from_text(kind)
        if rdatatype.is_metatype(wanted):
            raise ValueError("this is no type of records")
        about = reversename.from_address(name) if kind == "PTR" and is_literal(name) else name
        servers = [] if server else list(map(str, resolver.Resolver().nameservers))
        return message.make_query(about, wanted, use_edns=0, payload=UDP_SIZE), servers[:MOST_SERVERS]
    except (exception.DNSException, ValueError) as error:
        raise FetchError("dns", f"can't ask for {name} {kind}: {error}") from None


def answer_in(data: bytes, query: Any) -> dict[str, object] | None:
    """Return what an answer says, nothing if it is truncated; None: it answers something else.  Raises FetchError."""
    from dns import exception, message, rcode

    if data[:2] != query.id.to_bytes(2, "big") or data[2:3] < b"\x80":
        return None
    if data[2] & TRUNCATED:
        return {}
    try:
        answer = message.from_wire(data)
        if not query.is_response(answer):
            return None
        found = answer.resolve_chaining() if isinstance(answer, message.QueryMessage) and answer.question else None
    except (exception.DNSException, ValueError) as error:
        raise FetchError("dns", f"the answer makes no sense: {str(error)[:200]}") from None
    records = found.answer if found and found.answer else ()
    texts = sorted(b"".join(each.strings) if hasattr(each, "strings") else str(each).encode() for each in records)
    ttl = {"ttl": found.minimum_ttl} if found and records else {}
    return {"rcode": rcode.to_text(answer.rcode()), "records": texts, **ttl}
