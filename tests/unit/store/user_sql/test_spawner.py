"""Processes are had again when what forks them has died, and what can't be had is told plainly."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from spyweb.clock import RealClock
from spyweb.errors import StoreError
from spyweb.model import Durability, JobId
from spyweb.store.user_sql.connection import Opening
from spyweb.store.user_sql.session import SqlProcess, SqlSpawner
from tests.fakes.sql import statement


@pytest.fixture
def spawner() -> Iterator[SqlSpawner]:
    spawner = SqlSpawner()
    yield spawner
    spawner.close()


def opening(folder: Path) -> Opening:
    return Opening(path=folder / "user.db", engine=None, durability=Durability.NORMAL)


async def test_one_that_died_is_started_again_and_its_children_go_on(spawner: SqlSpawner, tmp_path: Path) -> None:
    first = await SqlProcess.start(spawner, opening(tmp_path), JobId("a"))
    assert spawner._child is not None
    spawner._child.kill()
    await spawner._child.wait(RealClock(), 1)
    second = await SqlProcess.start(spawner, opening(tmp_path), JobId("b"))
    for process in (first, second):
        assert (await process.perform(statement("SELECT 1 AS a"), RealClock())).rows == [{"a": 1}]
        await process.close()


async def test_a_large_answer_is_decoded_where_no_thread_can_be_had(
    spawner: SqlSpawner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def no_thread(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(asyncio, "to_thread", no_thread)
    process = await SqlProcess.start(spawner, opening(tmp_path), JobId("a"))
    answered = await process.perform(statement("SELECT zeroblob(300000) AS a"), RealClock())
    assert answered.rows == [{"a": bytes(300_000)}]
    await process.close()


async def test_what_can_not_be_had_is_a_plain_error(
    spawner: SqlSpawner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_sockets(*_: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(socket, "socketpair", no_sockets)
    with pytest.raises(StoreError, match=r"^no process for SQL could be started: Too many open files$"):
        await SqlProcess.start(spawner, opening(tmp_path), JobId("a"))
