"""One attempt: what is posted, and what each answer means."""

from __future__ import annotations

import dataclasses
import hmac
import json
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest

from spyweb.errors import FetchError
from spyweb.logs.output import stamp
from spyweb.model import JobSpec, PingAddresses, RunId, Webhook
from spyweb.ops.network.request import Response
from spyweb.outbox.send import (
    LONGEST_LOG,
    DeliveryFailure,
    MessageTransport,
    desktop_message,
    judge,
    place_of,
    retry_after_ms,
)
from spyweb.permissions.hosts import read_net
from spyweb.permissions.policy import Grants, policy_of
from spyweb.runs.records import PingFacts
from spyweb.store.model.messages import Channel, NewMessage, QueuedMessage, Target
from tests.fakes.alerts import make_transport
from tests.fakes.clock import START_MS, FakeClock
from tests.fakes.findings import HOOK, kept, message
from tests.fakes.harness import make_spec
from tests.fakes.monitor import make_monitor
from tests.fakes.ops import PRICES, FakeHttp, make_response

SIGNED = make_monitor(webhook=Webhook(url=HOOK.address, secret="env:HOOK_SECRET")).spec


def channels(http: FakeHttp | None = None) -> MessageTransport:
    return make_transport(http=http or FakeHttp())


def answered(answer: Response | FetchError) -> FakeHttp:
    return FakeHttp(answers={HOOK.address: answer})


async def test_what_the_policy_of_its_job_refuses_now_is_not_sent() -> None:
    http = FakeHttp()
    narrow = policy_of(Grants(net=read_net([]), notify=False))
    transport = make_transport(http=http, spec_of=lambda _: make_spec(policy=narrow))
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
    assert fetch.headers == {"Content-Type": "application/json", "Authorization": "Bearer x", "X-SpyWeb-Delivery": "d1"}


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
    given = {"HOOK_SECRET": "s3cret"} if environ is None else environ
    return make_transport(http=http, clock=clock, spec_of=lambda _: SIGNED, environ=given)


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
async def test_only_a_2xx_means_that_it_has_arrived_and_the_reason_is_short(status: int, is_refused: bool) -> None:
    trouble = judge(make_response(status=status, body=b"  no\nsuch \xff hook "), START_MS)

    reason = f"answered {status}: no such � hook"
    assert trouble == DeliveryFailure(reason=reason, holds=not is_refused, is_refused=is_refused)
    assert judge(make_response(status=204), START_MS) is None
    long = judge(make_response(status=status, body=b"x" * 100_000), START_MS)
    assert long is not None
    assert len(long.reason) < 250


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


BASE = PingAddresses(base="https://hc.example/${KEY}/{job}?create=1")
URL = "https://hc.example/the-key/prices{}?create=1&rid=r1"


def queued(kind: str, reason: str = "") -> QueuedMessage:
    ended_ms = None if kind == "start" else START_MS + 1_000
    facts = PingFacts(kind=kind, rid="r1", run=RunId(7), started_ms=START_MS, ended_ms=ended_ms, reason=reason)
    return kept(
        NewMessage(job=PRICES, target=Target(Channel.PING, PRICES), payload=msgspec.json.encode(facts), headers=())
    )


def sender(root: Path, http: FakeHttp, spec: JobSpec | None) -> MessageTransport:
    environ = {"KEY": "the-key", "API_TOKEN": "tok-123456"}
    return make_transport(http=http, spec_of=lambda _: spec, root=root, environ=environ)


@pytest.mark.parametrize(("kind", "behind"), [("start", "/start"), ("success", ""), ("fail", "/fail")])
async def test_each_kind_has_its_address_in_the_form_of_healthchecks(tmp_path: Path, kind: str, behind: str) -> None:
    http = FakeHttp()
    assert await sender(tmp_path, http, make_spec(ping=BASE)).send(queued(kind)) is None
    (fetch,) = http.asked
    assert (fetch.method, str(fetch.url), fetch.gate) == ("POST", URL.format(behind), None)
    assert "X-SpyWeb-Signature" not in fetch.headers


async def test_addresses_of_its_own_are_asked_for_as_they_are_and_those_that_are_not_there_are_not(
    tmp_path: Path,
) -> None:
    http = FakeHttp()
    kuma = PingAddresses(success="https://kuma/push/${KEY}?status=up", fail="https://kuma/push/{job}?status=down")
    pings = sender(tmp_path, http, make_spec(ping=kuma))
    for kind in ("start", "success", "fail"):
        assert await pings.send(queued(kind)) is None
    assert [str(fetch.url) for fetch in http.asked] == [
        "https://kuma/push/the-key?status=up",
        "https://kuma/push/prices?status=down",
    ]


async def test_the_body_is_the_end_of_the_runs_log_and_why_it_has_failed_without_secrets(tmp_path: Path) -> None:
    folder = tmp_path / "jobs/prices"
    folder.mkdir(parents=True)
    lines = [
        f"{stamp(START_MS - 5)} INFO of an earlier run",
        *[f"{stamp(START_MS + 1)} INFO {'x' * 90}"] * 120,
        f"{stamp(START_MS + 2)} INFO token: abcdef, and tok-123456",
        f"{stamp(START_MS + 5_000)} INFO of a later one",
    ]
    (folder / "hooks.log").write_text("\n".join(lines) + "\n")
    http = FakeHttp()
    await sender(tmp_path, http, make_spec(ping=BASE)).send(queued("fail", "no space"))
    body = http.asked[0].body or b""
    assert len(body) <= LONGEST_LOG
    assert body.endswith(b"INFO token: [hidden], and [hidden]\nno space")
    assert b"run" not in body


async def test_nobody_is_told_any_more_where_the_job_or_its_setting_is_gone(tmp_path: Path) -> None:
    http = FakeHttp()
    for spec in (None, make_spec()):
        assert await sender(tmp_path, http, spec).send(queued("success")) is None
    assert http.asked == []


async def test_why_it_has_not_arrived_says_nothing_of_the_address(tmp_path: Path) -> None:
    refused = FetchError("connect", f"no way to {URL.format('')}")
    for answer, reason in (
        (refused, "connect: no way to its address"),
        (make_response(status=404, body=b"no check the-key"), "answered 404: no check ***"),
    ):
        http = FakeHttp(answers={URL.format(""): answer})
        failure = await sender(tmp_path, http, make_spec(ping=BASE)).send(queued("success"))
        assert failure
        assert failure.reason == reason
        assert "the-key" not in failure.reason
    missing = make_spec(ping=PingAddresses(base="https://hc/${OTHER}"))
    failure = await sender(tmp_path, FakeHttp(), missing).send(queued("success"))
    assert failure
    assert failure.reason == "the variable OTHER is not set"


async def test_an_address_of_the_jobs_own_file_must_be_permitted_and_is_taken_as_it_stands(tmp_path: Path) -> None:
    http = FakeHttp()
    narrow = policy_of(Grants(net=read_net(["api.example.com"])))
    own = PingAddresses(base="https://hc.example/x", is_own=True)
    failure = await sender(tmp_path, http, make_spec(ping=own, policy=narrow)).send(queued("success"))
    assert failure
    assert (http.asked, failure.holds) == ([], False)
    theirs = dataclasses.replace(own, is_own=False)
    assert await sender(tmp_path, http, make_spec(ping=theirs, policy=narrow)).send(queued("success")) is None
