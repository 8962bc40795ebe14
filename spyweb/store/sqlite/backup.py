"""Back up a project's databases into one file while they are in use, put them back, and make them smaller.

The file is a zip archive, uncompressed, of the databases and `manifest.json`.  One that is read may have been made by
anybody: no name in it chooses a path, and no more is read of it than the file itself has.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import IO
from zipfile import ZIP_STORED, BadZipFile, ZipFile

import msgspec
from msgspec import Struct

from spyweb import __version__
from spyweb.clock import Clock
from spyweb.errors import Refused, StoreCorrupt, StoreError, StoreNewer
from spyweb.files import open_regular
from spyweb.model import Durability
from spyweb.settings.sections import DATABASE, LOCK_NAME, MARKER, USER_DB, Settings
from spyweb.store.access import PRIVATE, refusal, user_name
from spyweb.store.encryption import codec_for, fingerprint_of
from spyweb.store.lock import hold_database, lock_file, shown_moment
from spyweb.store.marker import Marker
from spyweb.store.sqlite import damage
from spyweb.store.sqlite.failures import opening
from spyweb.store.sqlite.migrate import load_migrations
from spyweb.store.sqlite.store import connect, open_as_it_is, refuse_unfit, set_up_writing
from spyweb.store.sqlite.vault import find_seal
from spyweb.words import cut

SCHEMAS = {DATABASE: "main", USER_DB: "scripts"}  # of the one connection that reads both
ARCHIVE = "backup.zip"  # while it is made
MANIFEST, MANIFEST_BYTES, LONGEST = "manifest.json", 1 << 16, 40  # characters of a text in it that are shown
PAGES, SLICE = 256, 1 << 20  # written and synced at once: no commit of the daemon waits behind more
STEPS = 100_000  # of SQLite's virtual machine between two calls of `advance`
UNFINISHED = ".unfinished"  # ends the name of the folder beside a backup, in which it is made
DECIDED = "restore.decided"  # in the data directory while databases are replaced
UNREADABLE = (
    BadZipFile, LookupError, ValueError, ArithmeticError, RuntimeError, EOFError, struct.error, msgspec.MsgspecError,
    StoreCorrupt,
)  # fmt: skip

Count = Callable[[int], None]  # called with bytes: that are to be handled, or were; the latter may raise


class Manifest(Struct, frozen=True, kw_only=True):
    """The description of a backup, in itself."""

    spyweb: str  # the version that made it
    schema: str  # the last migration of the database
    created: str
    key: str  # the fingerprint of the key of stored values; empty: they are not encrypted


def databases_of(settings: Settings) -> Mapping[str, Path]:
    """Return the databases of a project by their names in a backup.  Raises StoreError where the store is no file."""
    store, user_db = settings.store, settings.daemon.data_dir / USER_DB
    if store.is_postgres:
        others = f"{user_db}, the file of the key and the project's folder belong to a backup too"
        raise StoreError(f"the store is a PostgreSQL: use its pg_dump and pg_restore; {others}")
    if store.is_memory:
        raise StoreError("the store is in memory, which has no file")
    return {DATABASE: store.path, USER_DB: user_db}


def make_backup(
    file: Path, settings: Settings, key: bytes | None, clock: Clock, expect: Count, advance: Count
) -> Manifest:
    """Copy the databases into a new file, which gets its name once it is complete.

    1. begin to read: all is copied as of now, whatever is written meanwhile; 2. copy; 3. check; 4. pack; 5. rename.
    """
    place, marker = Path(os.path.realpath(file)), Marker(settings.daemon.data_dir, settings.database, clock)
    databases = databases_of(settings)
    paths = {name: path for name, path in databases.items() if name == DATABASE or damage.size_of(path)}
    size = sum(damage.size_of(path) + damage.size_of(damage.wal_of(path)) for path in paths.values())
    folder = place.with_name(f".{place.name}{UNFINISHED}")
    with opening(place), ExitStack() as stack:
        need_room(place.parent, 2 * size)
        try:
            folder.mkdir(PRIVATE)
        except FileExistsError:  # by a process that was killed, or another user's trap
            if (owner := folder.lstat().st_uid) != os.geteuid():
                raise refusal(folder, user_name(owner)) from None
        stack.callback(os.close, lock_file(folder / LOCK_NAME))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        if os.path.lexists(place) or place in databases.values():
            raise Refused(f"{place} is there already: nothing was written")
        expect(2 * size)
        with opening(settings.store.path):
            reading = open_as_it_is(settings.store.path, codec_for(key), settings.store.durability, marker)
        with closing(reading):
            if USER_DB in paths:
                reading.execute(f"ATTACH ? AS {SCHEMAS[USER_DB]}", (f"{paths[USER_DB].absolute().as_uri()}?mode=ro",))
            reading.execute("BEGIN")
            for name in paths:
                reading.execute(f"SELECT name, sql FROM {SCHEMAS[name]}.sqlite_master").fetchall()
            manifest = Manifest(
                spyweb=__version__,
                schema=load_migrations()[-1].name,
                created=shown_moment(clock.now_ms()),
                key=fingerprint_of(key) if key and find_seal(reading) else "",
            )
            for name in paths:
                copy(reading, SCHEMAS[name], folder / name, advance)
        (folder / ARCHIVE).touch(0o600)
        with (folder / ARCHIVE).open("wb") as target, ZipFile(target, "w", ZIP_STORED) as archive:
            for name, path in paths.items():
                check_pages(folder / name, path, advance)
                with (folder / name).open("rb") as source, archive.open(name, "w", force_zip64=True) as member:
                    pump(source, member, target, advance)
                remove(folder / name)
            archive.writestr(MANIFEST, msgspec.json.format(msgspec.json.encode(manifest)))
        sync(folder / ARCHIVE)
        os.replace(folder / ARCHIVE, place)
        sync(place.parent)
    return manifest


def need_room(folder: Path, size: int) -> None:
    """Raise StoreError where a disk has less room: a full one would keep the daemon from storing."""
    free = shutil.disk_usage(folder).free
    if free < size:
        raise StoreError(f"{folder}: needs {size:,} bytes of room on this disk, which has {free:,}")


def copy(connection: sqlite3.Connection, schema: str, path: Path, advance: Count) -> None:
    path.write_bytes(b"")  # a killed process may have left one
    with closing(connect(path, "rw")) as copied, path.open("rb") as file:

        def note(*_: int) -> None:
            os.fsync(file.fileno())
            advance(SLICE)

        copied.execute("PRAGMA journal_mode = OFF")
        copied.execute("PRAGMA synchronous = OFF")  # `note` syncs
        connection.backup(copied, pages=PAGES, progress=note, name=schema)


def check_pages(copied: Path, path: Path, advance: Count) -> None:
    """Check the copy of a database that nobody else opens.  Raises StoreCorrupt with the path."""
    with opening(path), closing(connect(copied, "ro&immutable=1")) as connection:  # SQLite makes no log beside it
        connection.set_progress_handler(lambda: advance(0), STEPS)
        damage.check_pages(connection, path)


def pump(source: IO[bytes], target: IO[bytes], file: IO[bytes], advance: Count) -> None:
    """Copy all, in slices of which each is in the file on the disk before the next is written."""
    while chunk := source.read(SLICE):
        target.write(chunk)
        file.flush()
        os.fsync(file.fileno())
        advance(len(chunk))


def remove(path: Path) -> None:
    """Remove a file in slices: a commit would wait for as long as the file system takes for all of a large one."""
    for size in range(damage.size_of(path), 0, -SLICE):
        os.truncate(path, size)
    path.unlink()


def sync(path: Path) -> None:
    """Have a file, or the names in a folder, on the disk."""
    opened = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    os.fsync(opened)
    os.close(opened)


@contextmanager
def reading_backup(file: Path) -> Iterator[None]:
    """Raise StoreError where what is read is not a backup's."""
    try:
        yield
    except UNREADABLE as error:
        raise StoreError(f"{file}: is no backup of spyweb, or was cut off or damaged") from error


def read_manifest(archive: ZipFile, size: int) -> Manifest:
    """Read the manifest of an archive in a file of this size, after the list of what is in it."""
    members = archive.infolist()
    names = {member.filename for member in members}
    is_whole = all(member.compress_type == ZIP_STORED for member in members)
    if (
        not {DATABASE, MANIFEST} <= names <= {MANIFEST, *SCHEMAS}
        or len(names) < len(members)
        or not is_whole
        or sum(member.file_size for member in members) > size
    ):
        raise BadZipFile("other files")
    with archive.open(MANIFEST) as described:
        return msgspec.json.decode(described.read(MANIFEST_BYTES), type=Manifest)


def restore(
    file: Path, settings: Settings, key: bytes | None, expect: Count, advance: Count, *, is_forced: bool
) -> tuple[Manifest, str]:
    """Put the databases of a backup in the place of the project's; return what the old ones' names now end with.

    The caller holds the lock of the data directory.  Nothing changes before all are extracted and checked; then it is
    decided, and if this process is killed, the next that opens the store to write completes it.
    """
    paths, known = databases_of(settings), [migration.name for migration in load_migrations()]
    settle_restore(settings)
    taken = [path for path in paths.values() if damage.size_of(path)]
    with opening(file), open_regular(file) as source, ExitStack() as stack:
        with reading_backup(file):
            archive = ZipFile(source)
            manifest = read_manifest(archive, os.fstat(source.fileno()).st_size)
        if manifest.schema not in known:
            made = f"made by spyweb {cut(manifest.spyweb, LONGEST)}, with {cut(manifest.schema, LONGEST)}"
            raise StoreNewer(f"{file}: {made}; spyweb {__version__} knows up to {known[-1]}")
        if manifest.key and (not key or fingerprint_of(key) != manifest.key):
            needed = f"the key with the fingerprint {cut(manifest.key, LONGEST)} as [store] key_file"
            raise StoreError(f"{file}: its values need {needed}, and {'that is another' if key else 'there is none'}")
        if taken and not is_forced:
            raise Refused(f"{taken[0]}: there is a database already: --replace moves it aside")
        for path in taken:
            stack.enter_context(hold_database(path))
        sizes = {member.filename: member.file_size for member in archive.infolist() if member.filename in paths}
        expect(sum(sizes.values()))
        try:
            for name in sizes:
                new = new_of(paths[name])
                need_room(new.parent, sum(sizes.values()))
                with opening(new), reading_backup(file):
                    new.touch(0o600, exist_ok=False)
                    with archive.open(name) as packed, new.open("wb") as target:
                        pump(packed, target, target, advance)
                    sync(new.parent)
                    check_pages(new, file, advance)
            (settings.daemon.data_dir / DECIDED).touch()
            sync(settings.daemon.data_dir)
        finally:
            aside = settle_restore(settings)
    return manifest, aside if taken else ""


def settle_restore(settings: Settings) -> str:
    """Complete a restore that was decided, or forget one; the caller holds the lock of the data directory.

    Return what the names of replaced databases end with.
    """
    aside, data_dir = damage.dated_ending("before-restore"), settings.daemon.data_dir
    if settings.store.is_file:
        paths = databases_of(settings)
        if (data_dir / DECIDED).exists():
            if new_of(paths[DATABASE]).exists():
                for path in paths.values():
                    damage.move_aside(path, path.with_name(path.name + aside))
            for path in filter(lambda path: new_of(path).exists(), paths.values()):
                os.replace(new_of(path), path)
                sync(path.parent)
            (data_dir / MARKER).unlink(missing_ok=True)  # what it knows is of the databases before
        for path in paths.values():
            new_of(path).unlink(missing_ok=True)
        (data_dir / DECIDED).unlink(missing_ok=True)
    return aside


def new_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.restoring")


def vacuum(settings: Settings, key: bytes | None, clock: Clock) -> tuple[int, int]:
    """Give free pages of the store's database back to the disk; return its size before and after."""
    path, marker = settings.store.path, Marker(settings.daemon.data_dir, settings.database, clock)
    if not settings.store.is_file or not path.exists():
        raise Refused("there is no database of SQLite" + ": PostgreSQL does it itself" * settings.store.is_postgres)
    with opening(path), hold_database(path, clock=clock):
        refuse_unfit(path, codec_for(key), Durability.FULL, marker)
        before = damage.size_of(path) + damage.size_of(damage.wal_of(path))
        need_room(path.parent, 2 * before)
        os.environ["SQLITE_TMPDIR"] = str(path.parent)  # /var/tmp may have less
        with closing(connect(path)) as connection:
            set_up_writing(connection, Durability.FULL)
            connection.execute("VACUUM")
        return before, damage.size_of(path)
