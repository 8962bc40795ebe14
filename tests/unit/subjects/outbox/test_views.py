"""What is shown of a message that has not arrived."""

from __future__ import annotations

from msgspec.structs import replace

from spyweb.model import JobId
from spyweb.store.model.messages import Channel, QueuedMessage, Target
from spyweb.subjects.outbox.views import view_message

ADDRESS = "https://user:password@hooks.example.org/services/secret?token=secret"
WAITING = QueuedMessage(
    id=7,
    delivery="d7",
    job=JobId("shop"),
    target=Target(Channel.WEBHOOK, ADDRESS),
    payload=b"{}",
    created_ms=1_000,
    next_ms=5_000,
    attempts=2,
    error="answered 503",
)


def test_nothing_secret_of_a_webhooks_address_is_shown() -> None:
    view = view_message(WAITING)
    assert view.to == "hooks.example.org"
    assert not {"secret", "password"} & {word for text in (view.to, view.error) for word in text.split("/")}


def test_one_that_waits_has_its_next_attempt_and_a_dead_one_has_none() -> None:
    waiting, dead = view_message(WAITING), view_message(replace(WAITING, dead_ms=9_000))
    assert (waiting.state, waiting.next_ms, waiting.attempts, waiting.error) == ("waiting", 5_000, 2, "answered 503")
    assert (dead.state, dead.next_ms) == ("dead", None)
