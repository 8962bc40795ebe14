"""Limit how much the daemon accepts from scripts, pages, servers, clients and files.

Code that accepts input imports its limits from here.  The rule: input that others chose is measured before any work
whose cost grows faster than its length, or that would block the loop; input over its limit is refused with the text of
`too_large`.  Sizes are bytes unless the name says otherwise.
"""

from __future__ import annotations

from typing import Final

# From Lua
NUMBER_TEXT: Final = 200  # bytes of a text that is read as a number
PATTERN: Final = 1_024  # bytes of a pattern with `*` and `?`
KEY: Final = 4_096  # bytes of a key of store_*; those of state.* have a setting
ARTIFACTS_FILES: Final = 1_000  # that one task keeps
ARTIFACTS_BYTES: Final = 1 << 30  # of these
SHOWN_OUTPUTS: Final = 1 << 20  # bytes of the outputs of a run's tasks that people are shown: 0.1 s of the loop
HOOK_BODY: Final = 1 << 20  # bytes of what is sent to a job's hook
HOOK_VALUES: Final = 20_000  # values inside it: the loop goes through them when the run begins
HOOK_QUERY: Final = 8_192  # characters of its address' parameters
IDEMPOTENCY_KEY: Final = 255  # characters
IDEMPOTENCY_KEYS: Final = 100_000  # kept at once
SCRIPT_VALUES: Final = 65_536  # bytes of what a script sees in `values`, as JSON
OP_ELEMENTS: Final = 200_000  # values inside the arguments of one op
HOOK_ELEMENTS: Final = 2_000_000  # values inside what a hook returns: items are read one by one
NUMBER_KEYS: Final = 5_000  # keys that are numbers in all tables of one value, but for arrays: such can collide
PARTS: Final = 1_000  # parts of a multipart body
SQL_KEPT: Final = 4_096  # bytes of a statement that is kept prepared

# From and to servers
HOST: Final = 253  # characters of a host name (RFC 1035)
AUTHORITY: Final = 1_024  # characters of user, password and host in a URL, where they are not all ASCII
ADDRESSES: Final = 32  # of one host: each that can't be connected to has all others tried once more
HEADERS: Final = 256  # header lines of one message
URL: Final = 64 * 1024  # bytes of an address that a script gives
METHOD: Final = 64  # bytes of a method
HEADER_BLOCK: Final = 64 * 1024  # bytes of all header lines of one message together
LOCATION: Final = 8 * 1024  # bytes of the address that a redirect names
INTERIM_ANSWERS: Final = 10  # answers 1xx before the real one
HANDSHAKE: Final = 1 << 20  # bytes of a TLS handshake, as far as it takes to see a certificate
ENCODINGS: Final = 10  # compressions of one body
CHUNKS: Final = 10_000  # of one body that are not counted
CHUNKS_PER_KB: Final = 64  # of the others
FRAMING: Final = 1 << 20  # bytes of a body that are not content, in addition to as many as there is content

# From clients
SOCKET_BODY: Final = 64 << 20  # bytes of a request body on the private socket

ADDRESS_PATH: Final = 8_190  # characters of the path in a request's address
PARAMETERS: Final = 1_000  # in its query
ACCESS_KEYS: Final = 1_000
KEY_JOBS: Final = 100  # patterns of the jobs that one key is limited to
KEY_TEXT: Final = 1_024  # characters of what a client sends as its key, or as its cookie
SESSIONS: Final = 2_000  # browsers that are signed in
SESSIONS_OF_KEY: Final = 50  # with one key
AUDIT_PENDING: Final = 1_000  # lines of the audit trail that wait for the store
STREAMS: Final = 128  # commands at a time that watch, or read very many entries
EVENT_STREAMS: Final = 200  # clients at a time that follow events
PAGE_STREAMS: Final = 256  # open pages of the dashboard
STREAMS_OF_ONE: Final = 20  # of either, of one address of another machine

# From files
KEY_SEGMENTS: Final = 32  # dotted parts of one key in TOML
PROJECT_FILE: Final = 1 << 20  # bytes of a file of the project: settings, or a job's Lua
TEXT_KEPT: Final = 4_096  # characters of a text that a cache keeps

# To the log
LOG_BYTES_PER_S: Final = 1 << 20  # of the lines of one run
LOG_COPY: Final = 1_024  # of a job's line in the daemon's log: hooks.log has the whole of it
LOG_LINE: Final = 64 * 1024  # characters of one line of the daemon's log
LOG_QUEUE: Final = 4 << 20  # bytes that wait for the reader of stdout or stderr


def too_large(what: str, size: int, limit: int, unit: str = "bytes") -> str:
    """Return the text for something over its limit: `a pattern has 2000 bytes, at most 1024 are allowed`."""
    return f"{what} has {size} {unit}, at most {limit} are allowed"


def too_many_chunks(chunks: int, size: int) -> bool:
    """Return whether a body of this size has so many small chunks that they cost more than their content."""
    return chunks > CHUNKS + size * CHUNKS_PER_KB // 1024
