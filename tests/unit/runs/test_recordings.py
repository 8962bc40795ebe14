"""Which runs have a record, and what it hides."""

from __future__ import annotations

import time

import pytest
from msgspec.structs import replace

from spyweb.logs.secrets import HIDDEN, Secrets
from spyweb.lua import wire
from spyweb.lua.recording import RunRecord, decode_record
from spyweb.lua.session import Code, EngineInfo, Request, VariableRule
from spyweb.lua.wire import OpCall, ResumeRun
from spyweb.model import Ending, JobId, Outcome, RecordRule, RunId
from spyweb.runs.recordings import SMALL, Hiding, RunRecorder
from tests.fakes.harness import make_job
from tests.fakes.pool import FAILED

Op = tuple[list[wire.Scalar], list[wire.Scalar]]  # what it was given, and answered
CODE = Code(job=JobId("a"), generation=1, chunk="a.lua", source=b"")
WELL, SKIPPED, LOST = Ending(outcome=Outcome.SUCCESS), Ending(outcome=Outcome.SKIPPED), Ending(outcome=Outcome.LOST)


def recorded(recorder: RunRecorder, *ops: Op, code: Code = CODE) -> Request:
    recording = recorder.begin(make_job().spec, 0)
    assert recording is not None
    for number, (given, answer) in enumerate(ops, 1):
        recording.note(OpCall(1, number, "op", given), (), 0.0, ResumeRun(1, number, wire.Form.PLAIN, answer), 0)
    return Request(
        run=RunId(1), code=code, timeout_ms=1, cpu_limit_ms=1, arguments=({"job": "a"}, True), recording=recording
    )


async def record_of(recorder: RunRecorder, request: Request) -> RunRecord:
    ending = await recorder.keep(RecordRule.FAILED, request, FAILED)
    assert ending.record
    return decode_record(ending.record[1])


@pytest.mark.parametrize(
    ("rule", "ending", "is_kept"),
    [
        (RecordRule.FAILED, FAILED, True),
        (RecordRule.FAILED, LOST, True),
        (RecordRule.FAILED, WELL, False),
        (RecordRule.FAILED, SKIPPED, False),
        (RecordRule.ALWAYS, WELL, True),
    ],
)
async def test_a_record_is_kept_where_the_job_says_so(rule: RecordRule, ending: Ending, is_kept: bool) -> None:
    recorder = RunRecorder()
    kept = await recorder.keep(rule, recorded(recorder, ([b"a"], [b"b"])), ending)

    assert (kept.record is not None, replace(kept, record=None)) == (is_kept, ending)


def test_a_job_may_say_that_none_of_its_runs_is_recorded() -> None:
    assert RunRecorder().begin(replace(make_job().spec, record=RecordRule.NEVER), 0) is None


async def test_a_large_record_is_as_whole_as_a_small_one() -> None:
    recorder = RunRecorder()
    many: Op = ([b"x" * SMALL], [b"y"])

    assert [op.answer for op in (await record_of(recorder, recorded(recorder, ([b"a"], [b"b"]), many))).ops] == [
        [b"b"],
        [b"y"],
    ]


async def test_a_record_shows_the_variables_that_the_job_may_read() -> None:
    recorder = RunRecorder(engine=EngineInfo(ops=(), env={"URL": "u", "API_TOKEN": "abcdefgh", "OTHERS": "o"}))
    code = replace(CODE, variables=(VariableRule(frozenset({"URL", "API_TOKEN"}), ""),))

    record = await record_of(recorder, recorded(recorder, code=code))

    assert record.variables == {"URL": "u", "API_TOKEN": HIDDEN}


@pytest.mark.parametrize(
    ("value", "hidden"),
    [
        ([b"known-secret-1 and more"], [b"[hidden] and more"]),
        ({b"Authorization": b"Bearer abcdefg"}, {b"Authorization": b"[hidden]"}),
        ({b"cookies": {b"sid": [b"x"]}}, {b"cookies": {b"sid": [b"[hidden]"]}}),
        ({"password": 123456789, "tokens": 50}, {"password": HIDDEN, "tokens": 50}),
        ([b'{"access_token": "abcdefg", "tokens": 12}'], [b'{"access_token": "[hidden]", "tokens": 12}']),
        ([b"https://me:hunter22@x.test/?api_key=abcdefg"], [b"https://me:[hidden]@x.test/?api_key=[hidden]"]),
        ([b"\xff known-secret-1"], [b"\xff [hidden]"]),
        ([b"plain", 7, 1.5, True, None], [b"plain", 7, 1.5, True, None]),
    ],
)
def test_a_secret_is_hidden_by_its_value_its_name_and_its_form(value: object, hidden: object) -> None:
    assert Hiding(Secrets(["known-secret-1"])).hide(value) == hidden


def test_a_value_that_has_a_secret_s_name_somewhere_is_hidden_everywhere() -> None:
    hiding = Hiding(Secrets())
    hiding.hide([{b"Authorization": b"Bearer s3cr3t-1"}, b'{"token":"s3cr3t-2"}'])

    assert hiding.hide([b"a s3cr3t-1 b", {"x": "s3cr3t-2"}]) == [b"a [hidden] b", {"x": "[hidden]"}]


async def test_a_secret_of_the_trigger_is_hidden_where_an_op_uses_it() -> None:
    recorder = RunRecorder()
    request = recorded(recorder, ([b"https://x.test/s3cr3t-of-payload/y"], [b""]))
    request = replace(request, arguments=({"trigger": {"payload": {"token": "s3cr3t-of-payload"}}}, True))

    assert (await record_of(recorder, request)).ops[0].given == [b"https://x.test/[hidden]/y"]


async def test_where_everything_is_named_a_secret_all_texts_are_hidden_and_that_soon() -> None:
    recorder = RunRecorder()
    ops: list[Op] = [([b"token=s3cr3t-%d " % n], [b"s3cr3t-%d " % n * 40]) for n in range(1_500)]
    request = recorded(recorder, *ops)
    began = time.process_time()

    record = await record_of(recorder, request)

    assert all(op.answer == [HIDDEN.encode()] for op in record.ops)
    assert time.process_time() - began < 5


async def test_what_can_t_be_encoded_costs_the_record_and_not_the_run() -> None:
    recorder = RunRecorder(seal=lambda *_: 1 / 0)  # type: ignore[arg-type]

    assert await recorder.keep(RecordRule.FAILED, recorded(recorder), FAILED) == FAILED
