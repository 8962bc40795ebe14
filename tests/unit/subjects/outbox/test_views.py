"""What is shown of a message that has not arrived."""

from __future__ import annotations

from msgspec.structs import replace

from spyweb.store.model.messages import Channel, Target
from spyweb.subjects.outbox.views import view_message
from tests.fakes.daemon_service import unsent_message

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
