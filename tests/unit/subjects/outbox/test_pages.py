"""The page of messages that have not arrived."""

from __future__ import annotations

import re

from msgspec.structs import replace

from spyweb.store.model.access import Scope
from spyweb.store.model.messages import QueuedMessage
from tests.fakes.daemon_service import BACKUP, FakeDaemonService, unsent_message
from tests.fakes.dashboard import (
    dashboard,
    get_page,
    make_dashboard_service,
    page_of,
    post_form,
    signed_in,
)


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
