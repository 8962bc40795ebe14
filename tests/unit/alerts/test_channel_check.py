"""What is wrong with channels, and which key of theirs it is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from spyweb.alerts.channel_check import ChannelProblem, check_channels, problems_in
from spyweb.alerts.channel_secrets import ChannelSecrets
from spyweb.alerts.sender.wire import CheckAddress, HelperAnswer, MessageTemplates
from spyweb.alerts.writing import TEMPLATE_FACTS
from spyweb.settings.alerts import AlertChannelSettings, ChannelTemplates
from tests.fakes.alerts import FakeHelper

PHONE = AlertChannelSettings(name="phone", url="ntfy://topic", templates=ChannelTemplates(body="{{ kind }}"))
OPS = AlertChannelSettings(name="ops", webhook="https://example.org/")
FINE = HelperAnswer(id=1, ok=True)


async def checked(
    root: Path, *channels: AlertChannelSettings, answer: HelperAnswer = FINE
) -> tuple[list[ChannelProblem], FakeHelper]:
    helper = FakeHelper(answer)
    return await check_channels(channels, ChannelSecrets(root, {}), helper), helper


async def test_only_the_address_of_a_service_needs_the_process(tmp_path: Path) -> None:
    desktop = AlertChannelSettings(name="me", desktop=True)
    problems, helper = await checked(tmp_path, PHONE, OPS, desktop)
    assert problems == []
    templates = MessageTemplates(body="{{ kind }}")
    assert helper.asked == [CheckAddress(id=0, url="ntfy://topic", templates=templates, names=TEMPLATE_FACTS)]


@pytest.mark.parametrize(
    ("channel", "key"),
    [
        (replace(PHONE, url="", url_file="nope"), "url_file"),
        (replace(OPS, secret="env:NOPE"), "secret"),
        (replace(OPS, secret_file="nope"), "secret_file"),
    ],
)
async def test_what_is_missing_is_told_without_the_process(
    tmp_path: Path, channel: AlertChannelSettings, key: str
) -> None:
    (problem,), helper = await checked(tmp_path, channel)
    assert (problem.channel, problem.keys, problem.is_lasting) == (channel.name, (key,), False)
    assert helper.asked == []


async def test_a_variable_that_is_missing_is_told_as_one_of_the_environment(tmp_path: Path) -> None:
    (problem,), helper = await checked(tmp_path, replace(PHONE, url="ntfy://${NOPE}"))
    told = ChannelProblem("phone", ("url",), "the variable NOPE is not set", is_of_environment=True)
    assert (problem, helper.asked) == (told, [])


async def test_so_is_a_secret_of_the_environment_and_one_in_a_file_is_not(tmp_path: Path) -> None:
    both = replace(OPS, secret="env:NOPE"), replace(OPS, secret_file="nope")
    problems, _ = await checked(tmp_path, *both)
    assert [each.is_of_environment for each in problems] == [True, False]


@pytest.mark.parametrize(
    ("key", "answer", "expected"),
    [
        ("url", {"reason": "no", "is_address_wrong": True}, (("url",), "no", True)),
        ("url_file", {"reason": "no", "is_address_wrong": True}, (("url_file",), "no", False)),
        ("url", {"reason": "it could not be started"}, (("url",), "it could not be started", False)),
        ("url", {"template": "body", "template_problem": "no"}, (("templates", "body"), "no", True)),
        ("url", {"template_problem": "too long"}, (("templates",), "too long", True)),
    ],
)
def test_an_answer_names_the_key(
    key: str, answer: dict[str, object], expected: tuple[tuple[str, ...], str, bool]
) -> None:
    (problem,) = problems_in(HelperAnswer(id=1, ok=False, **answer), "phone", key)  # type: ignore[arg-type]
    assert problem == ChannelProblem("phone", *expected)
    assert problem.is_of_template is (expected[0][0] == "templates")
