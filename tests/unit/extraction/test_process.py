from __future__ import annotations

from asyncio import Future, get_running_loop

import pytest

from spyweb.errors import ExtractionError
from spyweb.extraction import process
from spyweb.extraction.process import SLOW, START_LIMIT, ExtractionAnswer, ExtractionRequest, ExtractorProcess
from spyweb.extraction.wire import Done, ExtractorReady, Rows, frame
from spyweb.model import JobId
from tests.fakes.clock import FakeClock

LIMIT = 10.0
SHOP = JobId("shop")


class Story:
    """An owner, and a transport, that write down what they are told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def idle(self, _process: ExtractorProcess) -> None:
        self.told.append("idle")

    def missing(self) -> None:
        self.told.append("missing")

    def gone(self, _process: ExtractorProcess, reason: str) -> None:
        self.told.append(f"gone: {reason}")

    def write(self, data: bytes) -> None: ...


def make_request(job: JobId | None, body: bytes) -> ExtractionRequest:
    answer: Future[ExtractionAnswer] = get_running_loop().create_future()
    return ExtractionRequest(
        job=job,
        task="checking a selector" if job is None else "taking the page apart",
        about=' (selector "p > b")',
        head=b"head",
        body=body,
        names=("a",),
        answer=answer,
    )


class Stage:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.story = Story()
        story = self.story
        self.process = ExtractorProcess(
            clock=self.clock, limit=LIMIT, on_idle=story.idle, on_missing=story.missing, on_gone=story.gone
        )
        self.process.connection_made(self.story)  # type: ignore[arg-type]

    def hear(self, *answers: ExtractorReady | Rows | Done) -> None:
        self.process.hear(b"".join(frame(answer) for answer in answers))

    def give(self, body: bytes = b"x", job: JobId | None = SHOP) -> ExtractionRequest:
        request = make_request(job, body)
        self.process.give(request)
        return request


@pytest.fixture
async def stage() -> Stage:
    return Stage()


@pytest.fixture
async def ready(stage: Stage) -> Stage:
    stage.hear(ExtractorReady([]))
    return stage


async def test_an_answer_comes_in_parts_and_leaves_it_idle(ready: Stage) -> None:
    request = ready.give()
    ready.hear(Rows([["1"], ["2"]]), Rows([["3"]]), Done())

    assert await request.answer == [{"a": "1"}, {"a": "2"}, {"a": "3"}]
    assert ready.story.told == ["idle", "idle"]


async def test_a_spent_one_gets_no_more(ready: Stage) -> None:
    request = ready.give()
    ready.hear(Done("too much", is_spent=True))

    assert await request.answer == "too much"
    assert ready.story.told == ["idle", "missing"]
    assert not ready.process.serves


async def test_a_slow_page_is_told_and_a_slower_one_ends_it(ready: Stage) -> None:
    request = ready.give()
    await ready.clock.turn(SLOW)
    assert ready.story.told == ["idle", "missing"]
    assert not request.answer.done()

    await ready.clock.turn(LIMIT - SLOW)
    with pytest.raises(ExtractionError) as caught:
        await request.answer
    assert str(caught.value) == 'taking the page apart took longer than 10 s (selector "p > b")'


async def test_a_selector_that_takes_too_long_to_check_is_told_as_that(ready: Stage) -> None:
    request = ready.give(job=None)
    await ready.clock.turn(SLOW)
    await ready.clock.turn(LIMIT - SLOW)
    with pytest.raises(ExtractionError, match=r"^checking a selector took longer than 10 s"):
        await request.answer


async def test_a_spent_process_that_lingers_is_ended_for_no_page(ready: Stage) -> None:
    ready.give()
    ready.hear(Done(is_spent=True))
    await ready.clock.turn(SLOW)
    await ready.clock.turn(LIMIT - SLOW)
    assert ready.process.request is None


async def test_a_page_in_time_leaves_no_timer(ready: Stage) -> None:
    ready.give()
    ready.hear(Done())

    assert ready.clock.pending == 0
    assert ready.process.serves


async def test_one_that_never_gets_ready_is_ended(stage: Stage) -> None:
    await stage.clock.turn(START_LIMIT)

    assert not stage.process.serves


@pytest.mark.parametrize("nonsense", [b"\xff" * 8, b"\1\0\0\0\xc1", frame(Done()), frame(Rows([["x"]]))])
async def test_nonsense_ends_it(ready: Stage, nonsense: bytes) -> None:
    ready.process.hear(nonsense)

    assert not ready.process.serves


async def test_a_row_that_does_not_fit_the_fields_is_nonsense(ready: Stage) -> None:
    ready.give()
    ready.hear(Rows([["1", "2"]]))

    assert not ready.process.serves


async def test_one_that_says_more_than_a_page_can_give_is_ended(ready: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "MOST_HEARD", 1000)
    request = ready.give()
    for _ in range(20):
        ready.hear(Rows([["x" * 100]]))

    assert len(request.items) < 11
    assert ready.process._end_reason == "it broke the protocol"


async def test_what_it_may_say_begins_anew_with_each_page(ready: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "MOST_HEARD", 1000)
    for _ in range(5):
        request = ready.give()
        ready.hear(Rows([["x" * 500]]), Done())
        assert (await request.answer) is not None

    assert ready.process._end_reason == ""


async def test_half_an_answer_is_not_kept_without_bound(ready: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "MOST_HEARD", 1000)
    ready.process.hear((1 << 27).to_bytes(4, "little"))
    for _ in range(20):
        ready.process.hear(b"x" * 100)

    assert ready.process._end_reason == "it broke the protocol"
