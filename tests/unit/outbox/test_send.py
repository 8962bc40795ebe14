"""One attempt: what is posted, and what each answer means."""

from __future__ import annotations

import hmac
import json
from collections.abc import Mapping

import pytest
from msgspec.structs import replace

from spyweb.errors import FetchError
from spyweb.model import Webhook
from spyweb.ops.network.request import Response
from spyweb.ops.notify_desktop import Desktop
from spyweb.outbox.send import (
    DeliveryFailure,
    MessageTransport,
    desktop_message,
    judge,
    place_of,
    retry_after_ms,
    webhook_message,
)
from spyweb.permissions.hosts import read_net
from spyweb.permissions.policy import Grants, policy_of
from spyweb.store.model.messages import Channel, NewMessage, QueuedMessage, Target
from tests.fakes.clock import START_MS, FakeClock
from tests.fakes.findings import HOOK, message
from tests.fakes.harness import make_spec
from tests.fakes.monitor import make_monitor
from tests.fakes.ops import PRICES, FakeHttp, make_response

SIGNED = make_monitor(webhook=Webhook(url=HOOK.address, secret="env:HOOK_SECRET")).spec


def kept(new: NewMessage, **changes: object) -> QueuedMessage:
    found = QueuedMessage(
        job=new.job,
        target=new.target,
        payload=new.payload,
        headers=new.headers,
        id=1,
        delivery="d1",
        created_ms=START_MS,
        next_ms=START_MS,
    )
    return replace(found, **changes)


def channels(http: FakeHttp | None = None) -> MessageTransport:
    return MessageTransport(http=http or FakeHttp(), desktop=Desktop({}), clock=FakeClock())


def answered(answer: Response | FetchError) -> FakeHttp:
    return FakeHttp(answers={HOOK.address: answer})


async def test_what_the_policy_of_its_job_refuses_now_is_not_sent() -> None:
    http = FakeHttp()
    narrow = policy_of(Grants(net=read_net([]), notify=False))
    transport = MessageTransport(
        http=http, desktop=Desktop({}), clock=FakeClock(), spec_of=lambda _: make_spec(policy=narrow)
    )
    for new, deed in ((message(), "may not reach"), (desktop_message(PRICES, "t", "b", None), "may not show")):
        failure = await transport.send(kept(new))
        assert failure is not None
        assert deed in failure.reason
        assert not failure.holds  # those of other jobs to the same target go on
    assert http.asked == []


async def test_a_webhook_is_a_post_of_json_with_the_deliverys_name() -> None:
    http = FakeHttp()
    assert await channels(http).send(kept(message('{"a":1}'))) is None

    (fetch,) = http.asked
    assert (fetch.method, str(fetch.url), fetch.body, fetch.follow) == ("POST", HOOK.address, b'{"a":1}', False)
    assert not fetch.whole
    assert fetch.headers == {
        "Content-Type": "application/json",
        "Authorization": "Bearer x",
        "X-SpyWeb-Delivery": "d1",
    }


async def test_the_users_own_content_type_stays_and_the_deliverys_name_can_not_be_forged() -> None:
    http = FakeHttp()
    await channels(http).send(kept(message(), headers=(("content-type", "text/plain"), ("x-spyweb-delivery", "mine"))))

    assert http.asked[0].headers == {"content-type": "text/plain", "X-SpyWeb-Delivery": "d1"}


async def test_a_webhook_with_a_secret_is_signed_at_each_attempt() -> None:
    http, clock = FakeHttp(), FakeClock()
    transport = signing(http, clock)
    await transport.send(kept(message('{"a":1}')))
    await clock.turn(90)
    await transport.send(kept(message('{"a":1}'), headers=(("x-spyweb-signature", "t=1,v1=forged"),)))

    found = [fetch.headers["X-SpyWeb-Signature"] for fetch in http.asked]
    assert found == [expected_signature(START_MS // 1000), expected_signature(START_MS // 1000 + 90)]
    assert [sorted(fetch.headers) for fetch in http.asked][1] == [
        "Content-Type",
        "X-SpyWeb-Delivery",
        "X-SpyWeb-Signature",
    ]


def signing(http: FakeHttp, clock: FakeClock, environ: Mapping[str, str] | None = None) -> MessageTransport:
    return MessageTransport(
        http=http,
        desktop=Desktop({}),
        clock=clock,
        spec_of=lambda _: SIGNED,
        environ={"HOOK_SECRET": "s3cret"} if environ is None else environ,
    )


def expected_signature(at_s: int) -> str:
    signed = hmac.new(b"s3cret", b'%d.d1.{"a":1}' % at_s, "sha256").hexdigest()
    return f"t={at_s},v1={signed}"


async def test_without_its_secret_a_webhook_waits_and_is_not_sent_unsigned() -> None:
    http = FakeHttp()
    trouble = await signing(http, FakeClock(), {}).send(kept(message()))

    assert trouble == DeliveryFailure(reason="the secret env:HOOK_SECRET is not there")
    assert http.asked == []


async def test_no_failure_repeats_a_secret() -> None:
    http = answered(make_response(status=401, body=b"wrong signature, expected it by s3cret"))
    trouble = await signing(http, FakeClock()).send(kept(message()))

    assert trouble is not None
    assert "s3cret" not in trouble.reason


@pytest.mark.parametrize(
    ("status", "is_refused"),
    [
        *((status, True) for status in (301, 400, 401, 404, 413)),
        *((status, False) for status in (408, 425, 429, 500, 503)),
    ],
)
async def test_only_a_2xx_means_that_it_has_arrived(status: int, is_refused: bool) -> None:
    trouble = judge(make_response(status=status, body=b"  no\nsuch \xff hook "), START_MS)

    reason = f"answered {status}: no such � hook"
    assert trouble == DeliveryFailure(reason=reason, holds=not is_refused, is_refused=is_refused)
    assert judge(make_response(status=204), START_MS) is None


async def test_a_long_answer_is_cut() -> None:
    trouble = judge(make_response(status=500, body=b"x" * 100_000), START_MS)

    assert trouble is not None
    assert len(trouble.reason) < 250


async def test_what_happens_on_the_way_is_the_targets_trouble() -> None:
    down = answered(FetchError("connect", "could not connect"))
    assert await channels(down).send(kept(message())) == DeliveryFailure(reason="connect: could not connect")


@pytest.mark.parametrize("address", ["file:///etc/passwd", "not an address", "http://", "http://\ud800/"])
async def test_an_address_that_is_none_is_its_messages_own_trouble(address: str) -> None:
    http = FakeHttp()
    trouble = await channels(http).send(kept(message(), target=HOOK._replace(address=address)))

    assert trouble is not None
    assert not trouble.holds
    assert http.asked == []


async def test_a_header_that_would_split_the_request_is_refused() -> None:
    trouble = await channels().send(kept(message(), headers=(("X", "1\r\nHost: evil"),)))

    assert trouble == DeliveryFailure(reason="header X has control characters in it", holds=False)


async def test_without_a_desktop_a_notification_counts_as_done() -> None:
    assert await channels().send(kept(desktop_message(message().job, "t", "b", None))) is None


@pytest.mark.parametrize(
    ("headers", "wait_ms"),
    [
        ({b"retry-after": b"120"}, 120_000),
        ({b"retry-after": b" 0 "}, 0),
        ({b"retry-after": b"Thu, 01 Jan 2026 00:01:00 GMT"}, 60_000),
        ({b"retry-after": b"Wed, 31 Dec 2025 00:00:00 GMT"}, 0),
        ({b"retry-after": b"-5"}, 0),
        ({b"retry-after": b"soon"}, 0),
        ({b"retry-after": b"\xff\xfe"}, 0),
        ({b"retry-after": b"9" * 5000}, 999_999_999_000),
        ({b"retry-after": b"Thu, 01 Jan 99999999 00:01:00 GMT"}, 0),
        ({}, 0),
    ],
)
def test_retry_after_is_seconds_or_a_date(headers: Mapping[bytes, bytes], wait_ms: int) -> None:
    assert retry_after_ms(headers, START_MS) == wait_ms


def test_a_webhooks_message_bears_its_address_and_headers() -> None:
    found = webhook_message(PRICES, Webhook(url="https://x.example/h", headers=(("A", "1"),)), b"{}")

    assert found.target == Target(Channel.WEBHOOK, "https://x.example/h")
    assert (found.job, found.headers, found.payload) == (PRICES, (("A", "1"),), b"{}")


def test_a_notification_is_told_as_json() -> None:
    found = desktop_message(PRICES, "3 new", "Tea: 1 €", 9000)

    assert found.target == Target(Channel.DESKTOP, "")
    assert json.loads(found.payload) == {"title": "3 new", "body": "Tea: 1 €", "timeout_ms": 9000}


@pytest.mark.parametrize(
    ("target", "place"),
    [
        (Target(Channel.WEBHOOK, "https://me:pw@hooks.example:8443/secret?token=x"), "hooks.example"),
        (Target(Channel.WEBHOOK, "not an address"), "webhook"),
        (Target(Channel.WEBHOOK, "http://[::1"), "webhook"),
        (Target(Channel.DESKTOP, ""), "desktop"),
    ],
)
def test_no_secret_of_an_address_is_logged(target: Target, place: str) -> None:
    assert place_of(target) == place
