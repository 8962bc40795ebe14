"""The PostgreSQL server of a store: its sessions, and its errors in words."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import parse_qs, urlsplit

import psycopg
from msgspec import Struct
from psycopg.abc import PQGen
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import Conninfo, TransactionStatus
from psycopg.types.numeric import Int8Dumper, IntLoader
from psycopg.types.string import TextLoader

from spyweb.errors import StoreError, StoreUnreachable
from spyweb.settings.reading import nearest
from spyweb.words import cut

OLDEST = 15
LEASE_S = 10.0
READ_S, QUESTION_S = 20.0, 600.0  # at most; a write has half a lease
STATEMENTS_KEPT_PREPARED = 500
LONGEST_TOLD, LONGEST_WORDS = 2_000, 300
MARK = "\U0010ffff"  # followed by 0: NUL, which PostgreSQL's text can't hold; by 1: itself
SET_UP = """
    SELECT substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8), set_config('search_path', $1, false),
        set_config('statement_timeout', $2, false), set_config('idle_in_transaction_session_timeout', $3, false),
        set_config('jit', 'off', false), set_config('random_page_cost', '1.1', false)
"""
# A dead server, or a way to it that is cut, is noticed within seconds; the URL may say otherwise.
USUAL: dict[str, str | int] = {
    "target_session_attrs": "read-write",  # of several hosts, the one that takes writes
    "client_encoding": "UTF8",
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}


def without_nul(text: str) -> str:
    """Return a text as PostgreSQL can hold it."""
    return text.replace(MARK, f"{MARK}1").replace("\0", f"{MARK}0")


class TextWithNul(TextLoader):
    def load(self, data: Any) -> str:
        text = str(super().load(data))
        return text.replace(f"{MARK}0", "\0").replace(f"{MARK}1", MARK) if MARK in text else text


class LongNumber(Int8Dumper):
    """Any int or bool: the store's columns have one type for both."""

    def dump(self, obj: Any) -> bytes:
        return b"%d" % obj


class PgSession(psycopg.Connection[tuple[Any, ...]]):
    """A session that gives up on an answer after some time: then it is closed."""

    answer_s: float | None = None
    timeline = ""  # of the database: another one means that it failed over, or was restored

    def wait(self, gen: PQGen[Any], interval: float = 0.1, timeout: float | None = None) -> Any:
        try:
            return super().wait(gen, interval, timeout or self.answer_s)
        except psycopg.OperationalError as error:
            if error.sqlstate or self.closed or self.info.transaction_status is not TransactionStatus.ACTIVE:
                raise
            self.close()
            raise psycopg.OperationalError(f"no answer within {self.answer_s:g} s") from None


class PgServer(Struct, frozen=True, kw_only=True):
    """The address of a store's schema, and how long its sessions wait."""

    url: str
    password: str = ""
    schema: str = "spyweb"
    application: str = "spyweb"
    lease_s: float = LEASE_S

    @property
    def name(self) -> str:
        """Return it for messages: without a password."""
        known = self._read_url()
        hosts, ports = (str(known.get(each) or "").split(",") for each in ("host", "port"))
        given = zip(hosts, ports * len(hosts) if len(ports) == 1 else ports, strict=False)
        places = ",".join(f"{host}:{port}" if port else host for host, port in given)
        return f"postgresql://{places}/{known.get('dbname') or ''}"

    def _read_url(self) -> dict[str, Any]:
        """Return its parts; none where libpq does not understand it, whose words may repeat a password."""
        try:
            return dict(conninfo_to_dict(self.url))
        except psycopg.Error:
            return {}

    def _fault(self) -> str:
        """Say why the URL can't be read; libpq's own error may repeat a password."""
        known = [option.keyword.decode() for option in Conninfo.get_defaults()]
        for name in parse_qs(urlsplit(self.url).query, keep_blank_values=True):
            if name not in known:
                return f"unknown option {name[:80]!r}{nearest(name, known)}"
        return 'expected "postgresql://USER@HOST/DATABASE"; in it % and in an option = and & are written as %XX'

    def __repr__(self) -> str:
        return self.name

    @property
    def quoted_schema(self) -> str:
        return '"{}"'.format(self.schema.replace('"', '""'))

    def connect(self, *, statement_s: float = QUESTION_S) -> PgSession:
        """Open a session; a statement is ended after so long (0: never), an idle transaction within a lease."""
        given = self._read_url()
        if not given:
            raise StoreError(f"[store] url: {self._fault()}")
        secret = {"password": self.password} if self.password else {}
        own = {"connect_timeout": max(2, round(self.lease_s / 2)), "application_name": self.application}
        wanted = {**USUAL, **own, **given, **secret}
        address = make_conninfo(**{name: str(value) for name, value in wanted.items()})
        session = PgSession.connect(address, autocommit=True, cursor_factory=psycopg.RawCursor, prepare_threshold=2)
        session.prepared_max = STATEMENTS_KEPT_PREPARED
        session.adapters.register_dumper(int, LongNumber)
        session.adapters.register_dumper(bool, LongNumber)
        session.adapters.register_loader("numeric", IntLoader)
        session.adapters.register_loader("text", TextWithNul)
        limits = f"{statement_s * 1000:.0f}", f"{self.lease_s * 250:.0f}"
        try:
            found = session.execute(SET_UP, (f"{self.quoted_schema}, pg_catalog, pg_temp", *limits)).fetchone()
        except BaseException:
            session.close()
            raise
        session.timeline = found[0] if found else ""
        session.answer_s = statement_s * 1.5 or None
        return session

    def refuse_unfit(self, session: PgSession) -> None:
        """Raise StoreError where a store can't be kept there."""
        encoding = session.info.parameter_status("server_encoding")
        if encoding != "UTF8":
            raise StoreError(f"{self.name}: the database's encoding is {encoding}: make one WITH ENCODING 'UTF8'")
        if session.info.server_version < OLDEST * 10_000:
            found = session.info.parameter_status("server_version")
            raise StoreError(f"{self.name}: PostgreSQL {found}: expected {OLDEST} or later")
        pid = session.execute("SELECT pg_backend_pid()").fetchone()
        if pid != (session.info.backend_pid,):  # a pooler has invented the one of the session
            raise StoreError(
                f"{self.name}: a pooler is there, which changes sessions: expected PostgreSQL's own address"
            )

    def explain(self, error: psycopg.Error) -> StoreError:
        """Return the error in one line, without values and passwords."""
        state = error.sqlstate or ""
        said = error.diag.message_primary or str(error).partition("\n\tIs the server ")[0] or type(error).__name__
        words = cut(PREFIXES.sub("", " ".join(said[:LONGEST_TOLD].split())), LONGEST_WORDS)
        if state in REASONS:
            return StoreError(f"{self.name}: {REASONS[state]}")
        if any(sign in words for sign in STANDBY):
            return StoreUnreachable(f"{self.name}: {REASONS['25006']}")
        if state == "42501":
            return StoreError(f"{self.name}: {words}: {self._right(words)}")
        is_away = state.startswith(("08", "57P")) or (not state and isinstance(error, psycopg.OperationalError))
        if is_away and not any(refusal in words for refusal in REFUSALS):
            return StoreUnreachable(f"{self.name}: can't be reached: {words}")
        hint = ": see [store] password, or ~/.pgpass" if "no password" in words else ""
        return StoreError(f"{self.name}: {words}{hint}")

    def _right(self, refusal: str) -> str:
        known = self._read_url()
        user = f'"{known["user"]}"' if known.get("user") else "its role"
        if " for database " in refusal:
            return f'GRANT CREATE ON DATABASE "{known.get("dbname")}" TO {user}'
        if " for schema " in refusal:
            return f"GRANT USAGE, CREATE ON SCHEMA {self.quoted_schema} TO {user}"
        return "expected the role that made the schema"


MEANWHILE = "other nodes have written the same again and again"
REASONS = {
    "53100": "no room left on its disk",
    "53200": "PostgreSQL is out of memory",
    "57014": "no answer in time: the statement was given up",
    "54000": "more than PostgreSQL takes: a key of about 2,700 bytes, or a text of 1 GB",
    "25006": "it takes no writes: it is a standby, or set to read only",
    "55P03": "another node has been writing for too long: try again",
    "40001": MEANWHILE,
    "40P01": MEANWHILE,
}
# Said to who can't log in however often it is tried; libpq gives no state, and in other languages it is tried again.
REFUSALS = (
    "authentication failed", "no password supplied", "pg_hba.conf", "does not exist", "not permitted to log in",
    "permission denied", "invalid ",
)  # fmt: skip
STANDBY = ("session is read-only", "recovery is in progress")
PREFIXES = re.compile(r"connection (to server .*? )?(failed|is bad): |FATAL: |fe_sendauth: |\[Errno -?\d+\] ")
