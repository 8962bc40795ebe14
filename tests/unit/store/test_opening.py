"""The store that a url names."""

from __future__ import annotations

from pathlib import Path

import pytest

from spyweb.errors import StoreError
from spyweb.store.sqlite.store import Store, open_any
from tests.fakes.clock import FakeClock
from tests.fakes.stores import KEY, LOGGED, RULES, put


async def test_a_path_is_a_database(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    store = await open_any(f"sqlite:///{path}", clock=FakeClock(), key=KEY)

    assert isinstance(store, Store)
    assert path.exists()
    await store.close()


async def test_a_database_whose_folder_is_missing_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=f"^{tmp_path}/a/b.db: there is no folder {tmp_path}/a: make it"):
        await open_any(f"sqlite:///{tmp_path}/a/b.db", clock=FakeClock())
    assert list(tmp_path.iterdir()) == []


async def test_memory_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = await open_any("memory:", clock=FakeClock(), key=KEY, history=RULES)
    await put(store, b"k", 1, namespace=LOGGED)
    await put(store, b"k", 2, namespace=LOGGED)

    assert store.stats().path == ":memory:"
    assert len(await store.values.history(LOGGED, b"k")) == 2
    await store.close()
    assert list(tmp_path.iterdir()) == []


async def test_anything_else_is_refused() -> None:
    with pytest.raises(StoreError, match=r"redis://x: expected 'sqlite:///'"):
        await open_any("redis://x", clock=FakeClock())
