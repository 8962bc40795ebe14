"""What is wrong with channels, and which key of theirs it is."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from spyweb.alerts.channel_check import AGAIN_S, ChannelChecker, ChannelProblem, check_channels, problems_in
from spyweb.alerts.channels import ChannelSecrets
from spyweb.alerts.sender.helper import AlertHelper
from spyweb.alerts.sender.wire import CheckAddress, HelperAnswer, HelperRequest, MessageTemplates
from spyweb.alerts.texts import TEMPLATE_FACTS
from spyweb.daemon.runtime import owned_tasks
from spyweb.settings.alerts import AlertChannelSettings, AlertSettings, ChannelTemplates
from tests.fakes.alerts import FakeHelper
from tests.fakes.clock import FakeClock

TEMPLATED = AlertChannelSettings(name="phone", url="ntfy://topic", templates=ChannelTemplates(body="{{ kind }}"))
PHONE = AlertChannelSettings(name="phone", url="ntfy://topic")
OPS = AlertChannelSettings(name="ops", webhook="https://example.org/")
FINE = HelperAnswer(id=1, ok=True)


async def checked(
    root: Path, *channels: AlertChannelSettings, answer: HelperAnswer = FINE
) -> tuple[list[ChannelProblem], FakeHelper]:
    helper = FakeHelper(answer)
    return await check_channels(channels, ChannelSecrets(root, {}), helper), helper


async def test_only_the_address_of_a_service_needs_the_process(tmp_path: Path) -> None:
    desktop = AlertChannelSettings(name="me", desktop=True)
    problems, helper = await checked(tmp_path, TEMPLATED, OPS, desktop)
    assert problems == []
    templates = MessageTemplates(body="{{ kind }}")
    assert helper.asked == [CheckAddress(id=0, url="ntfy://topic", templates=templates, names=TEMPLATE_FACTS)]


@pytest.mark.parametrize(
    ("channel", "key", "is_of_environment"),
    [
        (replace(TEMPLATED, url="", url_file="nope"), "url_file", False),
        (replace(OPS, secret="env:NOPE"), "secret", True),
        (replace(OPS, secret_file="nope"), "secret_file", False),
        (replace(TEMPLATED, url="ntfy://${NOPE}"), "url", True),
    ],
)
async def test_what_is_missing_is_told_without_the_process(
    tmp_path: Path, channel: AlertChannelSettings, key: str, is_of_environment: bool
) -> None:
    (problem,), helper = await checked(tmp_path, channel)
    assert (problem.channel, problem.keys, problem.is_lasting) == (channel.name, (key,), False)
    assert problem.is_of_environment is is_of_environment
    assert problem.reason == "the variable NOPE is not set" or key != "url"
    assert helper.asked == []


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


class BrokenAnswers(dict[str, HelperAnswer]):
    def get(self, *_: object) -> HelperAnswer:
        raise ZeroDivisionError


@dataclass
class Checked(AlertHelper):
    """A checker, what it asked about, and what it told."""

    channels: Mapping[str, AlertChannelSettings]
    clock: FakeClock = field(default_factory=FakeClock)
    wrong: Mapping[str, HelperAnswer] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    told: list[tuple[str, str, str]] = field(default_factory=list)
    missing_desktop: str = ""
    is_mine: bool = True
    checker: ChannelChecker = field(init=False)

    async def ask(self, request: HelperRequest) -> HelperAnswer:
        assert isinstance(request, CheckAddress)
        self.asked.append(request.url)
        return self.wrong.get(request.url, HelperAnswer(id=1, ok=True))

    async def reload(self, *channels: AlertChannelSettings) -> None:
        """Let these be the channels now, and have them looked at."""
        self.channels = {each.name: each for each in channels}
        self.checker.wake()
        await self.clock.turn(0)

    def take(self) -> tuple[list[str], list[tuple[str, str, str]]]:
        """Return what was asked and told since the last time."""
        found = self.asked[:], self.told[:]
        self.asked.clear()
        self.told.clear()
        return found


@asynccontextmanager
async def checker_of(root: Path, *channels: AlertChannelSettings) -> AsyncIterator[Checked]:
    here = Checked({each.name: each for each in channels})
    here.checker = ChannelChecker(
        settings=lambda: AlertSettings(channels=here.channels),
        secrets=ChannelSecrets(root, {}),
        helper=here,
        clock=here.clock,
        find_missing_desktop=lambda: here.missing_desktop,
        tell=lambda *found: here.told.append(found),
        is_mine=lambda channel: here.is_mine,
    )
    async with owned_tasks() as tasks:
        checking = tasks.create_task(here.checker.keep_up())
        await here.clock.turn(0)
        yield here
        checking.cancel()


async def test_each_form_of_a_channel_is_checked_once(tmp_path: Path) -> None:
    async with checker_of(tmp_path, PHONE, OPS) as here:
        assert here.take() == (
            ["ntfy://topic"],
            [("phone", "address", ""), ("phone", "template", ""), ("ops", "address", ""), ("ops", "template", "")],
        )
        here.checker.wake()
        await here.clock.turn(10 * AGAIN_S)
        assert here.take() == ([], [])
        await here.reload(replace(PHONE, url="ntfy://other"))
        assert here.take()[0] == ["ntfy://other"]


async def test_a_channel_to_which_another_node_sends_is_checked_each_time_that_it_comes_here(tmp_path: Path) -> None:
    async with checker_of(tmp_path) as here:
        for here.is_mine in (False, True, False, True):
            await here.reload(PHONE)
            asked, told = here.take()
            assert (asked, bool(told)) == ([PHONE.url] * here.is_mine, here.is_mine)


async def test_a_wrong_address_is_told_and_asked_about_again_only_once_it_is_another(tmp_path: Path) -> None:
    with capture_logs() as lines:
        async with checker_of(tmp_path) as here:
            here.wrong = {"ntfyy://x": HelperAnswer(id=1, ok=False, reason="no service", is_address_wrong=True)}
            here.channels = {"phone": replace(PHONE, url="ntfyy://x")}
            here.checker.wake()
            await here.clock.turn(10 * AGAIN_S)
            assert here.take() == (["ntfyy://x"], [("phone", "address", "url: no service"), ("phone", "template", "")])
    assert [(line["log_level"], line["alert_channel"], line["reason"]) for line in lines] == [
        ("error", "phone", "no service")
    ]


async def test_a_file_that_is_put_right_heals_the_channel_without_a_reload(tmp_path: Path) -> None:
    with capture_logs() as lines:
        async with checker_of(tmp_path, AlertChannelSettings(name="phone", url_file="phone")) as here:
            assert here.take()[1][0] == (
                "phone",
                "address",
                "url_file: the file phone can't be read: No such file or directory",
            )
            await here.clock.turn(AGAIN_S)
            (tmp_path / "phone").write_text("ntfy://topic")
            await here.clock.turn(AGAIN_S)
            assert here.take()[1][-2] == ("phone", "address", "")
            await here.clock.turn(10 * AGAIN_S)
            assert here.take() == ([], [])
    assert len(lines) == 1


async def test_a_desktop_that_is_not_there_is_told(tmp_path: Path) -> None:
    async with checker_of(tmp_path) as here:
        here.missing_desktop = "there is no desktop here"
        await here.reload(AlertChannelSettings(name="me", desktop=True))
        assert here.take()[1][0] == ("me", "address", "desktop: there is no desktop here")


async def test_a_template_that_compiles_is_believed_only_where_it_is_another_one(tmp_path: Path) -> None:
    fails, other = ChannelTemplates(body="{{ incident + 'x' }}"), ChannelTemplates(body="{{ incident }}")
    async with checker_of(tmp_path, replace(PHONE, templates=fails)) as here:
        assert here.take()[1] == [("phone", "address", "")]
        await here.reload(replace(PHONE, templates=fails, has_own_quiet=True))
        assert here.take()[1] == [("phone", "address", "")]
        await here.reload(replace(PHONE, templates=other))
        assert here.take()[1] == [("phone", "address", ""), ("phone", "template", "")]


async def test_a_template_that_does_not_compile_is_told(tmp_path: Path) -> None:
    async with checker_of(tmp_path) as here:
        here.wrong = {PHONE.url: HelperAnswer(id=1, ok=False, template="body", template_problem="no")}
        await here.reload(replace(PHONE, templates=ChannelTemplates(body="{% if %}")))
        assert here.take()[1] == [("phone", "address", ""), ("phone", "template", "templates.body: no")]


async def test_a_bug_in_checking_ends_neither_the_daemon_nor_later_checks(tmp_path: Path) -> None:
    with capture_logs() as lines:
        async with checker_of(tmp_path, PHONE) as here:
            here.take()
            here.channels = {"phone": replace(PHONE, url="ntfy://fails")}
            here.wrong = BrokenAnswers()
            here.checker.wake()
            await here.clock.turn(0)
            here.wrong, here.channels = {}, {"phone": replace(PHONE, url="ntfy://works")}
            here.checker.wake()
            await here.clock.turn(0)
            assert here.take()[0] == ["ntfy://fails", "ntfy://works"]
    assert [line["event"] for line in lines] == ["internal error while checking alert channels"]
