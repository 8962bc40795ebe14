"""Messages that have not arrived: what is shown of one, in the API, on the page and by the commands."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from spyweb.store.model.access import Scope
from spyweb.store.model.messages import Channel, NewMessage, QueuedMessage, Target
from spyweb.store.sqlite.store import open_store
from spyweb.subjects.outbox.views import view_message
from spyweb.web.app import socket_app
from tests.fakes.changes import NEWS
from tests.fakes.client import client_of, get_json, post_json
from tests.fakes.clock import FakeClock
from tests.fakes.command import spyweb
from tests.fakes.daemon_service import BACKUP, FakeDaemonService, unsent_message
from tests.fakes.daemon_socket import serve_daemon_socket
from tests.fakes.dashboard import dashboard, get_page, make_dashboard_service, page_of, post_form, signed_in
from tests.fakes.findings import message

ADDRESS = "https://user:password@hooks.example.org/services/secret?token=secret"
WAITING = replace(unsent_message(7), target=Target(Channel.WEBHOOK, ADDRESS), next_ms=5_000, dead_ms=None)


def test_nothing_secret_of_a_webhooks_address_is_shown() -> None:
    view = view_message(WAITING)
    assert view.to == "hooks.example.org"
    assert not {"secret", "password"} & {word for text in (view.to, view.error) for word in text.split("/")}


def test_one_that_waits_has_its_next_attempt_and_a_dead_one_has_none() -> None:
    waiting, dead = view_message(WAITING), view_message(replace(WAITING, dead_ms=9_000))
    assert (waiting.state, waiting.next_ms, waiting.attempts, waiting.error) == ("waiting", 5_000, 3, "answered 500")
    assert (dead.state, dead.next_ms) == ("dead", None)


async def test_messages_are_listed_of_one_job_or_of_all_a_page_at_a_time() -> None:
    service = FakeDaemonService(unsent=[unsent_message(2, BACKUP), unsent_message(1)])
    async with client_of(socket_app(service)) as client:
        for query, ids in (("", [2, 1]), ("?job=Backup", [2]), ("?job=gone", []), ("?limit=1", [2])):
            _, answer = await get_json(client, f"/api/outbox{query}")
            assert [each["id"] for each in answer] == ids
        async with client.get("/api/outbox?limit=1") as page:
            assert page.headers["Link"] == '<?limit=1&before=2>; rel="next"'
        _, older = await get_json(client, "/api/outbox?limit=1&before=2")
        assert [each["id"] for each in older] == [1]
        assert (await get_json(client, "/api/outbox?limit=none"))[0] == 400


async def test_one_or_all_are_sent_again() -> None:
    service = FakeDaemonService(unsent=[unsent_message(2), unsent_message(1)])
    async with client_of(socket_app(service)) as client:
        assert await post_json(client, "/api/outbox/retry?id=2") == (200, {"retried": [2]})
        assert await post_json(client, "/api/outbox/retry") == (200, {"retried": [2, 1]})
    assert service.story == ["retry 2", "retry None"]


def with_messages(*messages: QueuedMessage) -> FakeDaemonService:
    service = make_dashboard_service()
    service.unsent = messages
    return service


async def test_it_says_how_many_were_given_up_and_why() -> None:
    async with dashboard(with_messages(unsent_message(2), replace(unsent_message(1), dead_ms=None))) as client:
        status, page = await get_page(client, "/outbox")
    assert status == 200
    assert "1\N{NO-BREAK SPACE}message given up; 1 waiting</h1>" in page
    assert re.findall(r'<tr id="m-(\d)">', page) == ["2", "1"]
    assert "next try <time" in page
    assert 'formaction="/outbox/2/retry"' in page
    assert "Send all again" in page


async def test_one_is_sent_again_and_all_are_after_a_question() -> None:
    service = with_messages(unsent_message(2), unsent_message(1))
    assert (await post_form(service, "/outbox/1/retry", back="/outbox"))[:2] == (303, "/outbox")
    assert (await post_form(service, "/outbox/7/retry"))[0] == 404
    asked = await post_form(service, "/outbox/retry")
    assert service.story == ["retry 1"]
    assert "2 in all, those that were given up too" in asked[2]
    assert (await post_form(service, "/outbox/retry", sure="yes"))[0] == 303
    assert service.story == ["retry 1", "retry None"]


async def test_whoever_may_see_some_jobs_sees_and_sends_the_messages_of_those() -> None:
    service = with_messages(unsent_message(2, BACKUP), unsent_message(1))
    limited = await signed_in(service, Scope.ADMIN, jobs=("backup",))
    page = await page_of("/outbox", service, limited)
    assert re.findall(r'<tr id="m-(\d)">', page) == ["2"]
    assert "Send all again" not in page
    for number, status in ((1, 404), (2, 303)):
        assert (await post_form(service, f"/outbox/{number}/retry", limited))[0] == status
    assert service.story == ["retry 2"]


def leave(root: Path, *messages: NewMessage) -> None:
    """The first of them is dead."""

    async def add() -> None:
        store = await open_store(root / "data" / "spyweb.db", clock=FakeClock())
        first, *_ = await store.outbox.add(messages)
        await store.outbox.give_up(first, error="answered 410: gone")
        await store.close()

    asyncio.run(add())


def test_what_waits_and_what_is_dead_is_a_table(project: Path) -> None:
    empty = spyweb("outbox", root=project)
    assert (empty.code, empty.out, empty.err) == (0, "", "no undelivered messages\n")
    assert "no job is named 'retry'" in spyweb("outbox", "retry", root=project).err
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
