"""A backup is what was stored at one moment, whole or not there; what is restored is one, or nothing changes."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from io import BytesIO
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile

import msgspec
import pytest
from msgspec.structs import replace

from spyweb.errors import LockHeld, Refused, StoreError
from spyweb.model import Durability, Value
from spyweb.settings.load import load_settings
from spyweb.settings.sections import DATABASE, USER_DB, Settings
from spyweb.store.encryption import fingerprint_of
from spyweb.store.lock import hold_database
from spyweb.store.marker import Marker
from spyweb.store.model.entries import GLOBAL
from spyweb.store.sqlite.backup import (
    DECIDED,
    MANIFEST,
    Manifest,
    make_backup,
    restore,
    settle_restore,
    vacuum,
)
from spyweb.store.sqlite.store import open_store
from tests.fakes.clock import FakeClock
from tests.fakes.full_disk import file_size_limit

KEY, OTHER = bytes(range(32)), bytes(range(1, 33))
BIG = b"v" * 300_000


@pytest.fixture
def here(tmp_path: Path) -> Settings:
    """A project."""
    return project_in(tmp_path / "here")


@pytest.fixture
def there(tmp_path: Path) -> Settings:
    """Another one, with nothing stored."""
    return project_in(tmp_path / "there")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "backups" / "b.zip"


@pytest.fixture(autouse=True)
def nothing_is_left_behind(tmp_path: Path) -> Iterator[None]:
    (tmp_path / "backups").mkdir()
    yield
    left = [
        path.name
        for path in tmp_path.rglob("*")
        if path.name.endswith((".restoring", DECIDED)) or ".unfinished" in path.name
    ]
    assert left == []


def project_in(root: Path) -> Settings:
    (root / "data").mkdir(parents=True)
    return load_settings(root, environ={}, flags={})


async def store(settings: Settings, value: bytes, key: bytes | None = None) -> None:
    marker = Marker(settings.daemon.data_dir, settings.store.path, FakeClock())
    opened = await open_store(
        settings.store.path, clock=FakeClock(), durability=Durability.NORMAL, key=key, marker=marker
    )
    await opened.values.set(GLOBAL, b"k", value)
    await opened.close()


async def stored(settings: Settings, key: bytes | None = None) -> Value:
    opened = await open_store(settings.store.path, clock=FakeClock(), durability=Durability.NORMAL, key=key)
    try:
        return await opened.values.get(GLOBAL, b"k")
    finally:
        await opened.close()


def store_by_script(settings: Settings, row: int) -> None:
    with closing(sqlite3.connect(settings.daemon.data_dir / USER_DB)) as connection:
        connection.executescript(f"CREATE TABLE IF NOT EXISTS rows (id); INSERT INTO rows VALUES ({row})")


def rows_of_script(settings: Settings) -> list[int]:
    with closing(sqlite3.connect(settings.daemon.data_dir / USER_DB)) as connection:
        return [row for (row,) in connection.execute("SELECT id FROM rows")]


def back_up(settings: Settings, file: Path, key: bytes | None = None) -> Manifest:
    return make_backup(file, settings, key, FakeClock(), ignore, ignore)


def ignore(count: int) -> None:
    pass


def bring(settings: Settings, file: Path, key: bytes | None = None, *, is_forced: bool = False) -> str:
    _, aside = restore(file, settings, key, ignore, ignore, is_forced=is_forced)
    return aside


def state_of(settings: Settings) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in settings.daemon.data_dir.iterdir() if "-lock" not in path.name}


async def test_what_was_backed_up_is_there_after_a_restore_in_another_folder(
    here: Settings, there: Settings, file: Path
) -> None:
    await store(here, b"1")
    store_by_script(here, 7)

    made = back_up(here, file)
    await store(here, b"2")
    bring(there, file)

    assert await stored(there) == b"1"
    assert rows_of_script(there) == [7]
    assert ZipFile(file).namelist() == [DATABASE, USER_DB, MANIFEST]
    assert (made.created, made.key) == ("2026-01-01T00:00:00Z", "")


async def test_a_backup_is_a_private_file_that_other_programs_can_read(here: Settings, file: Path) -> None:
    await store(here, b"1")

    made = back_up(here, file)

    assert file.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in file.parent.iterdir()] == [file.name]
    with ZipFile(file) as archive:
        assert archive.testzip() is None
        assert archive.namelist() == [DATABASE, MANIFEST]
        assert msgspec.json.decode(archive.read(MANIFEST), type=Manifest) == made


async def test_a_file_that_is_there_is_not_replaced(here: Settings, file: Path) -> None:
    await store(here, b"1")
    file.write_text("mine")

    with pytest.raises(Refused, match=r"b\.zip is there already: nothing was written"):
        back_up(here, file)

    assert file.read_text() == "mine"


async def test_a_second_backup_into_the_same_file_is_refused(here: Settings, file: Path) -> None:
    await store(here, b"1")

    def advance(count: int) -> None:
        with pytest.raises(LockHeld, match=r"b\.zip\.unfinished is in use by another spyweb"):
            back_up(here, file)

    make_backup(file, here, None, FakeClock(), ignore, advance)
    assert file.exists()


async def test_there_is_no_backup_of_a_damaged_database(here: Settings, file: Path) -> None:
    await store(here, BIG)
    with here.store.path.open("r+b") as database:
        database.seek(-200_000, 2)
        database.write(b"\xff" * 8192)

    with pytest.raises(StoreError, match=r"spyweb\.db: the database is damaged"):
        back_up(here, file)

    assert not file.exists()


async def test_there_is_no_backup_of_what_is_not_there(here: Settings, file: Path) -> None:
    with pytest.raises(StoreError, match="there is no database yet"):
        back_up(here, file)


@pytest.mark.parametrize("url", ["postgresql://me@host/db", "memory:"])
def test_a_store_that_is_no_file_says_what_to_use(tmp_path: Path, file: Path, url: str) -> None:
    settings = load_settings(tmp_path, environ={"SPYWEB_STORE_URL": url}, flags={})

    expected = r"pg_dump and pg_restore; .*/user\.db, the file of the key" if "post" in url else "in memory"
    with pytest.raises(StoreError, match=expected):
        back_up(settings, file)


async def test_encrypted_values_are_restored_with_their_key_alone(here: Settings, there: Settings, file: Path) -> None:
    await store(here, b"secret", KEY)
    made = back_up(here, file, KEY)

    assert made.key == fingerprint_of(KEY)
    assert KEY not in file.read_bytes()
    assert KEY.hex().encode() not in file.read_bytes()
    for key, what in ((None, "there is none"), (OTHER, "that is another")):
        with pytest.raises(StoreError, match=rf"fingerprint {made.key} as \[store\] key_file, and {what}"):
            bring(there, file, key)
    bring(there, file, KEY)
    assert await stored(there, KEY) == b"secret"


async def test_a_database_that_is_there_is_replaced_only_on_request_and_kept(
    here: Settings, there: Settings, file: Path
) -> None:
    await store(here, b"1")
    await store(there, b"mine")
    store_by_script(there, 7)
    marker = Marker(there.daemon.data_dir, there.store.path, FakeClock())
    marker.note_opened(None)
    marker.note_user_db()
    back_up(here, file)
    before = state_of(there)

    with pytest.raises(Refused, match=r"spyweb\.db: there is a database already: --replace moves it aside"):
        bring(there, file)
    assert state_of(there) == before
    aside = bring(there, file, is_forced=True)

    assert await stored(there) == b"1"
    data = there.daemon.data_dir
    assert not (data / USER_DB).exists()  # the backup has none
    assert not Marker(data, there.store.path, FakeClock()).has_user_db  # the next start would miss it
    assert sqlite3.connect(data / f"{USER_DB}{aside}").execute("SELECT id FROM rows").fetchall() == [(7,)]
    (data / f"{DATABASE}{aside}").rename(data / DATABASE)
    assert await stored(there) == b"mine"


async def test_a_database_that_another_project_uses_is_not_replaced(
    here: Settings, there: Settings, file: Path
) -> None:
    await store(here, b"1")
    await store(there, b"mine")
    back_up(here, file)

    with hold_database(there.store.path), pytest.raises(LockHeld):
        bring(there, file, is_forced=True)

    assert await stored(there) == b"mine"


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
async def test_a_full_disk_leaves_nothing_behind(here: Settings, there: Settings, file: Path, share: float) -> None:
    """At 1 the copy of the database fits, and the archive does not."""
    await store(here, BIG)
    back_up(here, file)
    another = file.with_name("another")

    with file_size_limit(4096 + round(share * (here.store.path.stat().st_size - 4000))):
        with pytest.raises(StoreError):
            back_up(here, another)
        if share < 1:
            with pytest.raises(StoreError):
                bring(there, file)

    assert [path.name for path in file.parent.iterdir()] == [file.name]
    assert list(there.daemon.data_dir.iterdir()) == []


async def test_neither_begins_on_a_disk_that_it_would_fill(
    here: Settings, there: Settings, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store(here, b"1")
    back_up(here, file)
    usage = shutil.disk_usage(file.parent)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=100_000))

    acts: list[Callable[[], object]] = [
        lambda: back_up(here, file.with_name("another")),
        lambda: bring(there, file),
        lambda: vacuum(here, None, FakeClock()),
    ]
    for act in acts:
        with pytest.raises(StoreError, match=r"needs [\d,]+ bytes of room on this disk, which has 100,000"):
            act()


async def test_work_on_a_backup_ends_when_its_progress_says_so(here: Settings, file: Path) -> None:
    def stop(count: int) -> None:
        raise StoreError("stop")

    await store(here, BIG)

    with pytest.raises(StoreError, match="stop"):
        make_backup(file, here, None, FakeClock(), ignore, stop)

    assert not file.exists()


def zip_of(*members: tuple[str, bytes], how: int = ZIP_STORED) -> bytes:
    target = BytesIO()
    with ZipFile(target, "w", how) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return target.getvalue()


def of(database: bytes, manifest: Manifest | bytes, name: str = DATABASE, how: int = ZIP_STORED) -> bytes:
    described = manifest if isinstance(manifest, bytes) else msgspec.json.encode(manifest)
    return zip_of((name, database), (MANIFEST, described), how=how)


NONE = "is no backup of spyweb, or was cut off or damaged"
X, HUGE = b"x" * 5000, b"\xfe\xff\xff\x7f"
# What becomes of a backup, its database and its manifest; and what is said of that.
Spoil = Callable[[bytes, bytes, Manifest], bytes]
BAD: dict[str, tuple[Spoil, str]] = {
    "empty": (lambda whole, database, made: b"", NONE),
    "a database": (lambda whole, database, made: database, NONE),
    "cut in the database": (lambda whole, database, made: whole[:50_000], NONE),
    "cut at the manifest": (lambda whole, database, made: whole[: len(database) + 200], NONE),
    "cut at the end": (lambda whole, database, made: whole[:-10], NONE),
    "cut in the middle": (lambda whole, database, made: whole[:50_000] + whole[60_000:], NONE),
    "a changed byte": (lambda whole, database, made: whole[:9000] + b"\xee" + whole[9001:], NONE),
    "leads out": (lambda whole, database, made: of(X, made, "../../x"), NONE),
    "twice": (
        lambda whole, database, made: zip_of((DATABASE, X), (DATABASE, database), (MANIFEST, described(made))), NONE,
    ),
    "one more file": (
        lambda whole, database, made: zip_of((DATABASE, database), ("x", X), (MANIFEST, described(made))), NONE,
    ),
    "only a manifest": (lambda whole, database, made: zip_of((MANIFEST, described(made))), NONE),
    "no manifest": (lambda whole, database, made: zip_of((DATABASE, database)), NONE),
    "no JSON": (lambda whole, database, made: of(database, b"{"), NONE),
    "no UTF-8": (lambda whole, database, made: of(database, b'{"spyweb": "\xff"}'), NONE),
    "deep JSON": (lambda whole, database, made: of(database, b"[" * 60_000), NONE),
    "a large manifest": (lambda whole, database, made: of(database, replace(made, spyweb="x" * 70_000)), NONE),
    "a huge size": (lambda whole, database, made: whole.replace(len(database).to_bytes(4, "little"), HUGE), NONE),
    "compressed": (lambda whole, database, made: of(database, made, how=ZIP_DEFLATED), NONE),
    "newer": (
        lambda whole, database, made: of(database, replace(made, spyweb="9.9.9", schema="9999_more")),
        r"made by spyweb 9\.9\.9, with 9999_more; spyweb \S+ knows up to \d{4}_",
    ),
    "no database": (lambda whole, database, made: of(X, made), NONE),
}  # fmt: skip


def described(made: Manifest) -> bytes:
    return msgspec.json.encode(made)


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("what", BAD)
async def test_a_bad_file_is_told_in_one_line_and_changes_nothing(
    here: Settings, there: Settings, file: Path, what: str
) -> None:
    await store(here, BIG)
    await store(there, b"mine")
    made = back_up(here, file)
    spoil, expected = BAD[what]
    with ZipFile(file) as archive:
        database = archive.read(DATABASE)
    file.write_bytes(spoil(file.read_bytes(), database, made))
    before = state_of(there)

    with pytest.raises(StoreError, match=expected) as told:
        bring(there, file, is_forced=True)

    assert "\n" not in str(told.value)
    assert str(told.value).startswith(str(file))
    assert state_of(there) == before


async def test_a_restore_that_was_not_decided_is_forgotten(there: Settings) -> None:
    await store(there, b"mine")
    (there.daemon.data_dir / f"{DATABASE}.restoring").write_bytes(b"half")

    settle_restore(there)

    assert await stored(there) == b"mine"


async def test_vacuum_gives_the_room_of_what_was_deleted_back(here: Settings) -> None:
    await store(here, BIG)
    await store(here, b"1")

    before, after = vacuum(here, None, FakeClock())

    assert before - after > 250_000
    assert here.store.path.stat().st_size == after
    assert await stored(here) == b"1"
