"""What a job's hook takes, how it is signed, and what its script sees of it."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from multidict import CIMultiDict

from spyweb.errors import Refused
from spyweb.limits import SCRIPT_VALUES
from spyweb.model import NULL, HookSigning, JobHook, JobId, Never, Overlap, Retry, RunId
from spyweb.outbox.send import headers_of, signature_of
from spyweb.store.model.messages import Channel, QueuedMessage, Target
from spyweb.subjects.hooks.service import TOLERANCE_S, Delivery, is_signed
from tests.fakes.harness import Harness, make_job
from tests.fakes.hooks import SECRET, delivery, hook, make_hooks, signed, stamped
from tests.fakes.pool import FAILED

PRICES = JobId("prices")


def trigger_of(t: Harness, request: int = -1) -> dict[str, Any]:
    """The trigger that a script has seen."""
    (ctx, *_) = t.pool.requests[request].arguments
    assert isinstance(ctx, dict)
    return dict(ctx["trigger"])


async def test_a_script_sees_the_payload_the_query_and_the_headers_that_it_asked_for(t: Harness) -> None:
    await t.settle(make_job(schedule=Never(), hook=hook(HookSigning.PLAIN, "x-github-event", "x-absent")))
    sent = Delivery(
        body=b"-",
        payload={"a": [1, None]},
        headers=CIMultiDict({"X-GitHub-Event": "push", "Cookie": "secret"}),
        query={"branch": "main"},
    )
    started = await make_hooks(t).receive(PRICES, sent)
    await t.clock.turn()
    assert trigger_of(t) == {
        "type": "webhook",
        "payload": {"a": [1, NULL]},
        "headers": {"x-github-event": "push"},
        "query": {"branch": "main"},
    }
    assert started.run is not None
    assert await t.record() == ["prices webhook success"]


async def test_a_large_payload_is_kept_apart_from_the_record_and_goes_with_the_run(t: Harness) -> None:
    await t.settle(make_job(schedule=Never()))
    started = await make_hooks(t).receive(PRICES, delivery(payload="x" * SCRIPT_VALUES))
    assert started.run is not None
    assert await t.store.runs.payload(started.run) is not None
    await t.clock.turn()
    assert trigger_of(t)["payload"] == "x" * SCRIPT_VALUES
    (run,) = await t.store.runs.list(PRICES)
    assert "x" * 100 not in str(run.trigger)
    assert await t.store.runs.payload(started.run) is None


@pytest.mark.parametrize("size", [10, SCRIPT_VALUES], ids=["in the trigger", "apart"])
async def test_each_attempt_sees_the_payload(t: Harness, size: int) -> None:
    t.pool.endings[PRICES] = [FAILED, FAILED]
    await t.settle(make_job(schedule=Never(), retry=Retry(retries=2, delay_ms=1_000, jitter=False)))
    await make_hooks(t).receive(PRICES, delivery(payload="x" * size))
    await t.clock.turn(30)
    assert [trigger_of(t, number)["payload"] for number in range(3)] == ["x" * size] * 3
    assert [trigger_of(t, number)["type"] for number in range(3)] == ["webhook", "retry", "retry"]
    assert await t.store.runs.payload(RunId(1)) is None


@pytest.mark.parametrize(("enabled", "reason"), [(False, "disabled"), (True, "paused")])
async def test_a_job_that_is_disabled_or_paused_is_not_started(t: Harness, enabled: bool, reason: str) -> None:
    await t.settle(job := make_job(schedule=Never(), enabled=enabled))
    if reason == "paused":
        await t.scheduler.pause(job)
    with pytest.raises(Refused, match=reason):
        await make_hooks(t).receive(PRICES, delivery())
    assert await t.record() == []


async def test_a_busy_job_that_does_not_queue_refuses(t: Harness) -> None:
    t.pool.held.add(PRICES)
    await t.settle(make_job(schedule=Never(), overlap=Overlap.SKIP))
    hooks = make_hooks(t)
    await hooks.receive(PRICES, delivery())
    await t.clock.turn()
    with pytest.raises(Refused, match="busy"):
        await hooks.receive(PRICES, delivery())
    t.pool.finish(1)
    await t.clock.turn()


async def test_a_repeated_delivery_starts_no_second_run_and_another_query_is_another_request(t: Harness) -> None:
    await t.settle(make_job(schedule=Never(), overlap=Overlap.ALLOW))
    hooks, sent = make_hooks(t), delivery(key="k")
    first, again = await hooks.receive(PRICES, sent), await hooks.receive(PRICES, sent)
    assert (again.run, again.is_repeated) == (first.run, True)
    with pytest.raises(Exception, match="used for another request"):
        await hooks.receive(PRICES, Delivery(body=b"{}", payload=None, headers={}, query={"x": "1"}, key="k"))
    await t.clock.turn()


async def test_what_github_has_signed_is_taken_once_by_its_own_id(t: Harness) -> None:
    await t.settle(make_job(schedule=Never(), overlap=Overlap.ALLOW, hook=hook(HookSigning.GITHUB)))
    hooks = make_hooks(t)

    def sent(number: str, key: str | None = None) -> Delivery:
        headers = CIMultiDict({"x-github-delivery": number})
        return Delivery(body=b"{}", payload=None, headers=headers, query={}, key=key)

    first, again = await hooks.receive(PRICES, sent("a")), await hooks.receive(PRICES, sent("a", key="other"))
    assert (again.run, again.is_repeated) == (first.run, True)
    assert not (await hooks.receive(PRICES, sent("b"))).is_repeated
    await t.clock.turn()


@pytest.mark.parametrize("signing", HookSigning)
async def test_only_a_hook_with_a_secret_knows_a_signature(t: Harness, signing: HookSigning) -> None:
    await t.settle(make_job(hook=hook(signing)), make_job("open"))
    hooks, now_s = make_hooks(t), t.clock.now_ms() / 1000
    headers = signed(signing, b"body", now_s)
    assert hooks.is_signed(PRICES, headers, b"body")
    assert not hooks.is_signed(JobId("open"), headers, b"body")
    assert not hooks.is_signed(None, headers, b"body")
    assert (hooks.needs_signature(PRICES), hooks.needs_signature(JobId("open"))) == (True, False)


async def test_a_secret_that_is_not_there_lets_nobody_in_not_even_with_an_empty_one(t: Harness) -> None:
    await t.settle(make_job(hook=hook()))
    for environ in ({}, {"HOOK": ""}, {"HOOK": "  "}):
        hooks = make_hooks(t, environ=environ)
        assert hooks.needs_signature(PRICES)
        for secret in ("", " ", SECRET):
            assert not hooks.is_signed(PRICES, signed(HookSigning.PLAIN, b"", 0, secret=secret), b"")
        assert not hooks.is_signed(PRICES, CIMultiDict(), b"")


async def test_a_job_that_is_edited_goes_by_its_new_hook_at_once(t: Harness) -> None:
    await t.settle(job := make_job(hook=hook()))
    hooks = make_hooks(t)
    job.spec = replace(job.spec, hook=JobHook())
    assert not hooks.is_signed(PRICES, signed(HookSigning.PLAIN, b"", 0), b"")


NOW_S = 1_767_225_600
BODY = b'{"action":"opened"}'
STAMPED = (HookSigning.STRIPE, HookSigning.SPYWEB)


def check(signing: HookSigning, headers: CIMultiDict[str], body: bytes = BODY, now_s: float = NOW_S) -> bool:
    return is_signed(signing, SECRET.encode(), headers, body, now_s)


def test_the_example_of_githubs_documentation_is_signed() -> None:
    signature = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    assert check(HookSigning.GITHUB, CIMultiDict({"X-Hub-Signature-256": signature}), b"Hello, World!")


@pytest.mark.parametrize("signing", HookSigning)
def test_a_sender_that_knows_the_secret_is_let_in_with_one_body_and_no_other(signing: HookSigning) -> None:
    assert check(signing, signed(signing, BODY, NOW_S))
    assert check(signing, signed(signing, BODY, NOW_S), BODY + b" ") is (signing is HookSigning.PLAIN)
    assert not check(signing, signed(signing, BODY, NOW_S, secret=SECRET + "x"))
    assert not check(signing, CIMultiDict())
    for other in HookSigning:
        assert check(signing, signed(other, BODY, NOW_S)) is (signing is other)


@pytest.mark.parametrize("signing", STAMPED)
@pytest.mark.parametrize(
    ("age_s", "is_good"), [(TOLERANCE_S, True), (TOLERANCE_S + 2, False), (-TOLERANCE_S - 2, False)]
)
def test_a_stamped_signature_holds_for_five_minutes(signing: HookSigning, age_s: int, is_good: bool) -> None:
    assert check(signing, signed(signing, BODY, NOW_S - age_s)) is is_good


def test_one_of_several_signatures_is_enough() -> None:
    """Stripe signs with both secrets while one is exchanged."""
    ours = stamped(SECRET.encode(), BODY, int(NOW_S))
    stamp, _, good = ours.partition(",")
    headers = CIMultiDict({"Stripe-Signature": f"{stamp},v1={'0' * 64},{good},v0=x"})
    assert check(HookSigning.STRIPE, headers)


@pytest.mark.parametrize(
    "header",
    ["", "t=,v1=", "v1=x", "t=abc,v1=x", "t=٣,v1=x", f"t={'9' * 400},v1=x", "t=1" + ",v1=0" * 5_000, "\udcff,t=\udcff"],
)
@pytest.mark.parametrize("signing", STAMPED)
def test_what_is_no_header_of_that_kind_is_no_signature(signing: HookSigning, header: str) -> None:
    name = {HookSigning.STRIPE: "Stripe-Signature", HookSigning.SPYWEB: "X-SpyWeb-Signature"}[signing]
    assert not check(signing, CIMultiDict({name: header}))


def test_a_stamp_that_was_changed_is_no_signature() -> None:
    ours = stamped(SECRET.encode(), BODY, int(NOW_S) - 1_000)
    _, _, signature = ours.partition(",")
    assert not check(HookSigning.STRIPE, CIMultiDict({"Stripe-Signature": f"t={int(NOW_S)},{signature}"}))


DELIVERY = "0123456789abcdef" * 2


def sent_by_spyweb(*, delivery: str = DELIVERY) -> CIMultiDict[str]:
    """Return the headers of a webhook that another daemon sends."""
    target = Target(Channel.WEBHOOK, "https://example.org/api/hooks/prices")
    queued = QueuedMessage(
        job=JobId("prices"), target=target, payload=BODY, id=1, delivery=delivery, created_ms=0, next_ms=0
    )
    stamp = signature_of(queued, SECRET.encode(), NOW_S)
    return CIMultiDict({**headers_of(queued), "X-SpyWeb-Signature": stamp})


def test_a_webhook_of_another_spyweb_is_signed() -> None:
    headers = sent_by_spyweb()
    assert check(HookSigning.SPYWEB, headers)
    assert not check(HookSigning.SPYWEB, headers, BODY + b" ")
    assert not check(HookSigning.SPYWEB, headers, now_s=NOW_S + TOLERANCE_S + 2)
    assert not check(HookSigning.STRIPE, headers)


@pytest.mark.parametrize("other", ["f" * 32, "", DELIVERY.upper()])
def test_the_delivery_of_a_webhook_is_signed_with_it(other: str) -> None:
    headers = sent_by_spyweb()
    headers["X-SpyWeb-Delivery"] = other
    assert not check(HookSigning.SPYWEB, headers)


def test_no_part_of_a_body_is_taken_for_its_delivery() -> None:
    """What was signed as a body alone is not split, unless where a delivery would end."""
    ours = stamped(SECRET.encode(), b"a." + BODY, NOW_S)
    headers = CIMultiDict({"X-SpyWeb-Signature": ours, "X-SpyWeb-Delivery": "a"})
    assert check(HookSigning.SPYWEB, headers, b"a." + BODY)
    assert not check(HookSigning.SPYWEB, headers)
