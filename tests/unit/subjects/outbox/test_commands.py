"""`spyweb outbox`: against a database, and against a daemon's socket."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from spyweb.store.model.messages import NewMessage
from spyweb.store.sqlite.store import open_store
from tests.fakes.changes import NEWS
from tests.fakes.clock import FakeClock
from tests.fakes.command import spyweb
from tests.fakes.daemon_service import FakeDaemonService, unsent_message
from tests.fakes.daemon_socket import serve_daemon_socket
from tests.fakes.findings import message


def leave(root: Path, *messages: NewMessage) -> None:
    """The first of them is dead."""

    async def add() -> None:
        store = await open_store(root / "data" / "spyweb.db", clock=FakeClock())
        first, *_ = await store.outbox.add(messages)
        await store.outbox.give_up(first, error="answered 410: gone")
        await store.close()

    asyncio.run(add())


def test_what_waits_and_what_is_dead_is_a_table(project: Path) -> None:
    leave(project, message(), message(job=NEWS))
    answer = spyweb("outbox", root=project)
    table = answer.table
    ages = [row.pop(2) for row in table]

    assert answer.lines[0].split() == ["id", "job", "since", "by", "to", "state", "attempts", "next", "error"]
    assert table == [
        ["2", "news", "webhook", "hooks.example", "waiting", "0", "now"],
        ["1", "prices", "webhook", "hooks.example", "dead", "1", "answered 410: gone"],
    ]
    assert all(age.endswith(" ago") for age in ages)
    assert len(spyweb("outbox", "news", root=project).lines) == 2


def test_nothing_left_to_send_is_said(project: Path) -> None:
    answer = spyweb("outbox", root=project)
    assert (answer.code, answer.out, answer.err) == (0, "", "everything has arrived\n")


def test_a_dead_one_is_sent_again(project: Path) -> None:
    leave(project, message())
    assert spyweb("outbox", "--retry", "1", root=project).out == "1 message is sent again\n"
    (found,) = spyweb("outbox", "-o", "json", root=project).json
    assert (found["state"], found["attempts"]) == ("waiting", 0)
    assert spyweb("outbox", "--retry", "all", "-o", "json", root=project).json == {"retried": [1]}


@pytest.mark.parametrize("which", ["7", "0", "x", "-1", "9" * 30])
def test_what_is_no_message_is_refused(project: Path, which: str) -> None:
    leave(project, message())
    answer = spyweb("outbox", f"--retry={which}", root=project)
    assert answer.code == 2
    assert answer.err.startswith("spyweb: ")


def test_a_running_daemon_is_asked(project: Path) -> None:
    service = FakeDaemonService(unsent=[unsent_message(5)])
    with serve_daemon_socket(service, project / "data"):
        assert spyweb("outbox", "prices", root=project).table[0][0] == "5"
        assert spyweb("outbox", "--retry", "all", root=project).out == "1 message is sent again\n"
    assert service.story == ["retry None"]
