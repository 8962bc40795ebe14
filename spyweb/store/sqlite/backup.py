"""Back up a project's databases into one file while they are in use, put them back, and make the store's smaller.

The file is a zip archive, uncompressed, of the databases and `manifest.json`.  One that is read may have been made by
anybody: no name in it chooses a path, and no more is read of it than the file itself has.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import struct
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from glob import escape
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO
from zipfile import ZIP_STORED, BadZipFile, ZipFile

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from spyweb import __version__
from spyweb.clock import Clock
from spyweb.errors import Refused, StoreError, StoreNewer
from spyweb.files import open_regular
from spyweb.model import Durability
from spyweb.settings.sections import DATABASE, MARKER, USER_DB, Settings
from spyweb.store.encryption import codec_for, fingerprint_of
from spyweb.store.lock import hold_database, shown_moment
from spyweb.store.marker import Marker
from spyweb.store.sqlite import damage
from spyweb.store.sqlite.failures import opening
from spyweb.store.sqlite.migrate import load_migrations
from spyweb.store.sqlite.store import connect, open_as_it_is, refuse_unfit, set_up_writing
from spyweb.store.sqlite.vault import find_seal
from spyweb.words import cut

SCHEMAS = {DATABASE: "main", USER_DB: "scripts"}  # of the one connection that reads both
MANIFEST, MANIFEST_BYTES, LONGEST = "manifest.json", 1 << 16, 40  # characters of a text in it that are shown
PAGES, SLICE = 256, 1 << 20  # written and synced at once: no commit of the daemon waits behind more
STEPS = 100_000  # of SQLite's virtual machine between two calls of `advance`
UNFINISHED = ".unfinished-"  # in the name of the folder beside a backup, in which it is made
DECIDED = "restore.decided"  # in the data directory while databases are replaced
UNREADABLE = (BadZipFile, LookupError, ValueError, RuntimeError, EOFError, struct.error, msgspec.MsgspecError)

Count = Callable[[int], None]  # called with bytes: that are to be handled, or were; the latter may raise


class SavedFile(Struct, frozen=True, kw_only=True):
    """A database in a backup."""

    name: str
    bytes: int
    sha256: str


class Manifest(Struct, frozen=True, kw_only=True):
    """The description of a backup, in itself."""

    spyweb: str  # the version that made it
    schema: str  # the last migration of the database
    created: str
    key: str  # the fingerprint of the key of stored values; empty: they are not encrypted
    files: Sequence[SavedFile] = ()


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

    1. begin to read, so that all are copied as of now, whatever is written meanwhile; 2. copy; 3. check the copies;
    4. pack them; 5. read the file again; 6. rename it.
    """
    place, marker = Path(os.path.realpath(file)), Marker(settings.daemon.data_dir, settings.database, clock)
    paths = {name: path for name, path in databases_of(settings).items() if name == DATABASE or damage.size_of(path)}
    if os.path.lexists(place):
        raise Refused(f"{place} is there already: nothing was written")
    beside = f".{place.name}{UNFINISHED}"
    for left in place.parent.glob(f"{escape(beside)}*"):  # by a process that was killed
        shutil.rmtree(left, ignore_errors=True)
    with opening(place), TemporaryDirectory(prefix=beside, dir=place.parent) as temporary:
        folder = Path(temporary)
        with opening(settings.store.path):
            reading = open_as_it_is(settings.store.path, codec_for(key), settings.store.durability, marker)
        with closing(reading):
            if USER_DB in paths:
                reading.execute(f"ATTACH ? AS {SCHEMAS[USER_DB]}", (f"{paths[USER_DB].absolute().as_uri()}?mode=ro",))
            reading.execute("BEGIN")
            for name in paths:
                reading.execute(f"SELECT name, sql FROM {SCHEMAS[name]}.sqlite_master").fetchall()
            is_encrypted = find_seal(reading) is not None
            size = sum(map(damage.size_of, [*paths.values(), *map(damage.wal_of, paths.values())]))
            need_room(folder, 2 * size)
            expect(3 * size)
            for name in paths:
                copy(reading, SCHEMAS[name], folder / name, advance)
        for name, path in paths.items():
            check_pages(folder / name, path, advance)
        manifest = Manifest(
            spyweb=__version__,
            schema=load_migrations()[-1].name,
            created=shown_moment(clock.now_ms()),
            key=fingerprint_of(key) if key and is_encrypted else "",
        )
        pack(folder, manifest, list(paths), advance)
        with open_regular(folder / MANIFEST) as packed:
            archive, manifest = read_manifest(packed, place)
            for saved in manifest.files:
                extract(archive, saved, None, place, advance)
        os.replace(folder / MANIFEST, place)
        sync_folder(place.parent)
    return manifest


def need_room(folder: Path, size: int) -> None:
    """Raise StoreError where a disk has less room: a full one would keep the daemon from storing."""
    free = shutil.disk_usage(folder).free
    if free < size:
        raise StoreError(f"{folder}: needs {size:,} bytes of room on this disk, which has {free:,}")


def copy(connection: sqlite3.Connection, schema: str, path: Path, advance: Count) -> None:
    path.touch(0o600)
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


def pack(folder: Path, manifest: Manifest, names: Sequence[str], advance: Count) -> None:
    """Pack the databases in a folder; there the archive has the name of the manifest."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_DSYNC
    with open(os.open(folder / MANIFEST, flags, 0o600), "w+b", 0) as file, ZipFile(file, "w", ZIP_STORED) as archive:
        saved = []
        for name in names:
            size = damage.size_of(folder / name)
            with (folder / name).open("rb") as source, archive.open(name, "w", force_zip64=True) as target:
                digest = pump(source, target, size, advance)
            saved.append(SavedFile(name=name, bytes=size, sha256=digest))
            (folder / name).unlink()
        archive.writestr(MANIFEST, msgspec.json.format(msgspec.json.encode(replace(manifest, files=saved))))


def pump(source: IO[bytes], target: IO[bytes] | None, size: int, advance: Count) -> str:
    """Copy that many bytes, or what is there of them; return their SHA-256."""
    digest = sha256()
    while size > 0 and (chunk := source.read(min(size, SLICE))):
        digest.update(chunk)
        if target:
            target.write(chunk)
        size -= len(chunk)
        advance(len(chunk))
    return digest.hexdigest()


def read_manifest(file: IO[bytes], path: Path) -> tuple[ZipFile, Manifest]:
    """Read the lists of files, the archive's and the manifest's.  Raises StoreError where they are not a backup's."""
    try:
        archive = ZipFile(file)
        members = {member.filename: member for member in archive.infolist() if member.compress_type == ZIP_STORED}
        with archive.open(members.pop(MANIFEST)) as described:
            manifest = msgspec.json.decode(described.read(MANIFEST_BYTES), type=Manifest)
        sizes = {saved.name: saved.bytes for saved in manifest.files}
        if (
            sizes != {name: member.file_size for name, member in members.items()}
            or not {DATABASE} <= sizes.keys() <= SCHEMAS.keys()
        ):
            raise BadZipFile("other files")
        for name in sizes:
            archive.open(name).close()
    except (*UNREADABLE, OSError) as error:
        raise StoreError(f"{path}: is no backup of spyweb, or was cut off or damaged") from error
    return archive, manifest


def extract(archive: ZipFile, saved: SavedFile, target: IO[bytes] | None, path: Path, advance: Count) -> None:
    """Copy a database, or without a target only read it.  Raises StoreError unless it is what was packed."""
    try:
        with archive.open(saved.name) as source:
            digest = pump(source, target, saved.bytes, advance)
    except UNREADABLE:
        digest = ""
    if digest != saved.sha256:
        raise StoreError(f"{path}: the backup is damaged: {saved.name} is not what was packed")


def restore(  # noqa: PLR0913 - as the command needs
    file: Path, settings: Settings, key: bytes | None, clock: Clock, expect: Count, advance: Count, *, is_forced: bool
) -> tuple[Manifest, str]:
    """Put the databases of a backup in the place of the project's; return what the old ones' names now end with.

    The caller holds the lock of the data directory.  Nothing changes before all are extracted and checked; then it is
    decided, and if this process is killed, the next that opens the store to write completes it.
    """
    paths, known = databases_of(settings), [migration.name for migration in load_migrations()]
    settle_restore(settings)
    taken = [path for path in paths.values() if damage.size_of(path)]
    with opening(file), open_regular(file) as source, ExitStack() as stack:
        archive, manifest = read_manifest(source, file)
        if manifest.schema not in known:
            made = f"made by spyweb {cut(manifest.spyweb, LONGEST)}, with {cut(manifest.schema, LONGEST)}"
            raise StoreNewer(f"{file}: {made}; spyweb {__version__} knows up to {known[-1]}")
        if manifest.key and (not key or fingerprint_of(key) != manifest.key):
            needed = f"the key with the fingerprint {cut(manifest.key, LONGEST)} as [store] key_file"
            raise StoreError(f"{file}: its values need {needed}, and {'that is another' if key else 'there is none'}")
        if taken and not is_forced:
            raise Refused(f"{taken[0]}: there is a database already: --replace moves it aside")
        for path in taken:
            stack.enter_context(hold_database(path, clock=clock))
        size = sum(saved.bytes for saved in manifest.files)
        expect(size)
        try:
            for saved in manifest.files:
                new = new_of(paths[saved.name])
                need_room(new.parent, size)
                with opening(new), open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as target:
                    extract(archive, saved, target, file, advance)
                    target.flush()
                    os.fsync(target.fileno())
                sync_folder(new.parent)
                check_pages(new, file, advance)
            (settings.daemon.data_dir / DECIDED).touch()
            sync_folder(settings.daemon.data_dir)
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
                sync_folder(path.parent)
            (data_dir / MARKER).unlink(missing_ok=True)  # what it knows is of the databases before
        for path in paths.values():
            new_of(path).unlink(missing_ok=True)
        (data_dir / DECIDED).unlink(missing_ok=True)
    return aside


def new_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.restoring")


def sync_folder(folder: Path) -> None:
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    os.fsync(opened)
    os.close(opened)


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
