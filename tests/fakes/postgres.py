"""PostgreSQL for tests: one server for all processes of a run, with a schema a test; and servers of a test's own.

The run's server is made by the process that first asks, and ended when the last one that asked is gone, killed or not.
Where PostgreSQL is not installed, who asks is skipped; with SPYWEB_TEST_POSTGRES=required, that fails.
"""

from __future__ import annotations

import atexit
import fcntl
import itertools
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

import psycopg
import pytest

IS_REQUIRED = os.environ.get("SPYWEB_TEST_POSTGRES") == "required"  # tests themselves do not see it
PORT = 5432  # of a socket in the server's own folder: no other server is in the way
OPTIONS = {
    "dynamic_shared_memory_type": "mmap",  # in the folder, which is removed
    "fsync": "off",
    "listen_addresses": "",
    "max_connections": "400",
    "port": str(PORT),
    "shared_buffers": "64MB",
}
READY_S = 60
OF_TESTS = "10s"  # a transaction that a test has left open fails that test
ADMIN = "postgres"
# As for users, who have no more: a database and the right to make schemas in it.  Tests may also ask for a checkpoint.
ROLE = """
    CREATE ROLE spyweb LOGIN IN ROLE pg_checkpoint;
    GRANT CREATE ON DATABASE postgres TO spyweb;
    GRANT CREATE ON SCHEMA public TO spyweb;
"""
EMPTY = """
    DO $$ DECLARE name text; BEGIN
        FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = current_schema() AND tablename <> 'migration'
            LOOP EXECUTE format('DELETE FROM %I', name); END LOOP;
        PERFORM setval(format('%I', sequencename), 1, false) FROM pg_sequences WHERE schemaname = current_schema();
    END $$
"""
RUN = os.environ.get("PYTEST_XDIST_TESTRUNUID") or uuid.uuid4().hex
numbers = itertools.count(1)
emptied: list[str] = []  # schemas with the tables of this spyweb, and nothing in them


class PostgresPlace(NamedTuple):
    """Where a store lies, as `[store] url` and `schema` name it."""

    url: str
    schema: str


@cache
def programs() -> Path | None:
    """Return the folder of PostgreSQL's programs, the newest of Debian's if they are not in PATH."""
    found = shutil.which("initdb")
    if found and (Path(found).resolve().parent / "postgres").exists():
        return Path(found).resolve().parent
    installed = Path("/usr/lib/postgresql").glob("*/bin/initdb")
    newest = max(installed, key=lambda path: int(path.parts[-3]), default=None)
    return newest.parent if newest else None


def program(name: str) -> str:
    """Return the path of a program of PostgreSQL; without one the test is skipped, or fails where it is required."""
    folder = programs()
    if folder:
        return str(folder / name)
    if IS_REQUIRED:
        pytest.fail("PostgreSQL is required, but there is no initdb in PATH or /usr/lib/postgresql/*/bin")
    return pytest.skip("PostgreSQL is not installed")


class PostgresServer:
    """A server whose folder does not exist yet; it ends with the thread that starts it."""

    def __init__(self, folder: Path, options: Mapping[str, str] | None = None) -> None:
        """Take settings beside those for every test."""
        self.folder = folder
        self.data = folder / "data"
        self.url = url_at(folder)
        self._admin = url_at(folder, ADMIN)
        self._options = OPTIONS | dict(options or {})
        self._process: subprocess.Popen[bytes] | None = None

    def make(self, *, standby_of: PostgresServer | None = None) -> None:
        """Make the database cluster, as a copy that follows another server if one is given."""
        self.folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        if os.geteuid() == 0:
            os.chown(self.folder, owner().pw_uid, owner().pw_gid)
        if standby_of:
            run("pg_basebackup", "-R", "-c", "fast", "-D", str(self.data), "-d", url_at(standby_of.folder, ADMIN))
        else:
            run("initdb", "-D", str(self.data), "-U", ADMIN, "-A", "trust", "-E", "UTF8", "--no-locale", "-N")

    def start(self) -> None:
        """Return once it takes connections."""
        options = [f"--{name}={value}" for name, value in self._options.items()]
        command = [*rights("--pdeathsig", "QUIT"), program("postgres"), "-D", str(self.data), "-k", str(self.folder)]
        with open(self.folder / "log", "ab") as log:
            self._process = subprocess.Popen(
                [*command, *options], stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        until_s = time.monotonic() + READY_S
        while not self._answers():
            is_over = self._process.poll() is not None or time.monotonic() > until_s
            assert not is_over, (self.folder / "log").read_text(errors="replace")[-2000:]
            time.sleep(0.02)
        self._make_role()

    def stop(self) -> None:
        """End it in order: connections are closed."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """Kill every process of it at once, as the end of a machine does."""
        for process in self._processes():
            send(process, signal.SIGKILL)
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        self.stop()
        self.start()

    def freeze(self) -> None:
        """Stop every process of it where it stands."""
        for process in self._processes():
            send(process, signal.SIGSTOP)

    def thaw(self) -> None:
        for process in self._processes():
            send(process, signal.SIGCONT)

    def promote(self) -> None:
        """Return once a standby takes writes."""
        run("pg_ctl", "promote", "-s", "-w", "-D", str(self.data))

    def close(self) -> None:
        """End it whatever it does, and remove its folder."""
        if self._process is not None:
            self.thaw()
            self._end(signal.SIGQUIT)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _make_role(self) -> None:
        with psycopg.connect(self._admin) as connection:
            is_there, is_copy = connection.execute(
                "SELECT to_regrole('spyweb') IS NOT NULL, pg_is_in_recovery()"
            ).fetchone() or (0, 0)
            if not is_there and not is_copy:
                connection.execute(ROLE)

    def _answers(self) -> bool:
        try:
            psycopg.connect(self._admin).close()
        except psycopg.OperationalError:
            return False
        return True

    def _end(self, how: signal.Signals) -> None:
        assert self._process is not None
        send(self._process.pid, how)
        self._process.wait(timeout=READY_S)
        self._process = None

    def _processes(self) -> list[int]:
        """Return them, the first being the one that would begin others."""
        assert self._process is not None
        first = self._process.pid
        return [first, *map(int, Path(f"/proc/{first}/task/{first}/children").read_text().split())]


def url_at(folder: Path, role: str = "spyweb") -> str:
    return f"postgresql://{role}@/postgres?host={folder}&port={PORT}"


@cache
def owner() -> pwd.struct_passwd:
    """Return whom the server runs as where the tests run as root, which it refuses."""
    names = {entry.pw_name: entry for entry in pwd.getpwall()}
    return names.get("postgres") or names["nobody"]


def rights(*options: str) -> list[str]:
    """Return how a command begins that runs a program of the server."""
    drop = ["--reuid", str(owner().pw_uid), "--regid", str(owner().pw_gid), "--clear-groups"]
    return ["setpriv", *options, *(drop if os.geteuid() == 0 else [])]


def run(name: str, *arguments: str) -> None:
    command = [*rights("--no-new-privs"), program(name), *arguments]
    done = subprocess.run(command, cwd="/", stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    assert done.returncode == 0, done.stdout.decode(errors="replace")


def send(process: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(process, number)


@contextmanager
def own_server(options: Mapping[str, str] | None = None, folder: Path | None = None) -> Iterator[PostgresServer]:
    """Yield a server that a test may stop, freeze or promote as it likes; in memory, if no folder is given."""
    server = PostgresServer(folder or short_folder(), options)
    try:
        server.make()
        server.start()
        yield server
    finally:
        server.close()


def short_folder() -> Path:
    """Return a new folder in memory whose path leaves room for a socket's, which may have 107 bytes."""
    folder = Path(tempfile.mkdtemp(prefix="spyweb-pg-", dir=memory()))
    folder.chmod(0o755)
    return folder


def memory() -> str | None:
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def connected(url: str, schema: str = "spyweb", lock_timeout: str = "0") -> psycopg.Connection:
    options = f"-c search_path={schema} -c client_min_messages=warning -c lock_timeout={lock_timeout}"
    return psycopg.connect(url, autocommit=True, options=options)


@contextmanager
def empty_schema() -> Iterator[PostgresPlace]:
    """Yield a place on the run's server where there is nothing, or empty tables: that takes a third of making them."""
    url = run_url()
    schema = emptied.pop() if emptied else f"e{os.getpid()}_{next(numbers)}"
    yield PostgresPlace(url, schema)
    connection = cleaner()
    connection.execute(f'SET search_path="{schema}"')
    connection.execute(EMPTY)
    emptied.append(schema)


@contextmanager
def fresh_schema() -> Iterator[PostgresPlace]:
    """Yield a place on the run's server where there is nothing yet, and remove what is there afterwards."""
    url = run_url()
    schema = f"t{os.getpid()}_{next(numbers)}"
    yield PostgresPlace(url, schema)
    with connected(url, schema, OF_TESTS) as connection:
        connection.execute(f'DROP SCHEMA IF EXISTS "{schema}" CASCADE')


@cache
def cleaner() -> psycopg.Connection:
    """Return the session that empties schemas: a new one would read the catalog anew each time."""
    connection = connected(run_url(), lock_timeout=OF_TESTS)
    atexit.register(connection.close)
    return connection


@cache
def run_url() -> str:
    """Return where the run's server is, which starts if this process is the first to ask."""
    program("postgres")
    place = Path(memory() or tempfile.gettempdir()) / f"spyweb-pg-{RUN[:12]}"
    hold(place / "users", fcntl.LOCK_SH)  # until this process ends
    starting = hold(place / "starting", fcntl.LOCK_EX)
    try:
        if not (place / "ready").exists():
            start_keeper(place)
    finally:
        os.close(starting)
    return url_at(place / "server")


def hold(path: Path, how: int) -> int:
    """Lock a file, which is made where there is none, also while its folder is being removed by who holds the lock."""
    while True:
        path.parent.mkdir(mode=0o755, exist_ok=True)
        with suppress(FileNotFoundError):
            file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
            fcntl.flock(file, how)
            with suppress(FileNotFoundError):
                if os.path.samestat(os.stat(path), os.fstat(file)):
                    return file
            os.close(file)


def start_keeper(place: Path) -> None:
    keeper = subprocess.Popen(
        [sys.executable, "-m", "tests.fakes.postgres", str(place)],
        cwd=Path(__file__).parents[2],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,  # Ctrl-C is for the tests, which still use the server
    )
    assert keeper.stdout is not None
    with keeper.stdout as output:
        line = output.readline()
        assert line == b"ready\n", (line + output.read()).decode(errors="replace")
    keeper.returncode = 0  # it outlives this process: nobody waits for it


def keep(place: Path) -> None:
    """Run the run's server while a process of the run lives."""
    server = PostgresServer(place / "server")
    try:
        server.make()
        server.start()
        (place / "ready").touch()
        os.write(sys.stdout.fileno(), b"ready\n")
        fcntl.flock(os.open(place / "users", os.O_RDWR), fcntl.LOCK_EX)  # granted when all of them are gone
    finally:
        server.close()
        shutil.rmtree(place, ignore_errors=True)


if __name__ == "__main__":
    keep(Path(sys.argv[1]))
