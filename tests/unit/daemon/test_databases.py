"""Opening the project's databases, and what a repair moves aside."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from spyweb.daemon import runtime
from spyweb.daemon.runtime import open_or_repair
from spyweb.errors import StoreCorrupt, StoreIncomplete
from spyweb.settings.load import load_settings
from spyweb.settings.sections import Settings
from spyweb.store.marker import Marker
from spyweb.store.model.entries import GLOBAL
from spyweb.store.sqlite.store import Store
from tests.fakes.clock import FakeClock


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    (tmp_path / "data").mkdir()
    return load_settings(tmp_path, environ={}, flags={})


async def opened(settings: Settings, *, repair: bool = False) -> Store:
    marker = Marker(settings.daemon.data_dir, settings.store.path, FakeClock())
    return await open_or_repair(settings, FakeClock(), marker, repair=repair)


async def test_a_repair_goes_on_with_the_commits_that_a_log_cut_in_half_still_holds(settings: Settings) -> None:
    data, kept = settings.daemon.data_dir, settings.root / "kept"
    await (await opened(settings)).close()
    store = await opened(settings)
    for key in (b"first", b"last"):
        await store.values.set(GLOBAL, key, b"1" * 10_000)
    shutil.copytree(data, kept)
    await store.close()
    shutil.rmtree(data)
    kept.rename(data)
    log = data / "spyweb.db-wal"
    os.truncate(log, log.stat().st_size - 4096)
    with pytest.raises(StoreIncomplete, match="with it 1 commit after"):
        await opened(settings)

    store = await opened(settings, repair=True)

    assert await store.values.get(GLOBAL, b"first") is not None
    assert await store.values.get(GLOBAL, b"last") is None
    (copy,) = data.glob("spyweb.db.corrupt-*-wal")
    assert copy.stat().st_size
    await store.close()


async def test_a_repair_moves_nothing_aside_for_a_passing_error_of_the_disk(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_really, failures = runtime.open_configured, [StoreCorrupt(settings.store.path, "disk I/O error")]

    async def open_or_fail(settings: Settings, clock: FakeClock, marker: Marker) -> Store:
        if failures:
            raise failures.pop()
        return await open_really(settings, clock, marker)

    await (await opened(settings)).close()
    monkeypatch.setattr(runtime, "open_configured", open_or_fail)
    await (await opened(settings, repair=True)).close()
    assert list(settings.daemon.data_dir.glob("*corrupt*")) == []

    settings.store.path.write_bytes(b"no database" * 1000)
    await (await opened(settings, repair=True)).close()
    assert len(list(settings.daemon.data_dir.glob("*corrupt*"))) == 1
