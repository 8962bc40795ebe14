"""Where a watcher elsewhere is told of runs, and what it is sent."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from spyweb.errors import FetchError
from spyweb.logs.output import stamp
from spyweb.model import JobId, JobSpec, PingAddresses, RunId
from spyweb.outbox.send import LONGEST_LOG, PingSender
from spyweb.permissions.hosts import read_net
from spyweb.permissions.policy import Grants, policy_of
from spyweb.runs.records import PingFacts
from spyweb.store.model.messages import Channel, QueuedMessage, Target
from tests.fakes.clock import START_MS, FakeClock
from tests.fakes.harness import make_spec
from tests.fakes.ops import FakeHttp, make_response

BASE = PingAddresses(base="https://hc.example/${KEY}/{job}?create=1")
URL = "https://hc.example/the-key/prices{}?create=1&rid=r1"


async def flush() -> None: ...


def queued(kind: str, reason: str = "") -> QueuedMessage:
    ended_ms = None if kind == "start" else START_MS + 1_000
    facts = PingFacts(kind=kind, rid="r1", run=RunId(7), started_ms=START_MS, ended_ms=ended_ms, reason=reason)
    return QueuedMessage(
        job=JobId("prices"), target=Target(Channel.PING, "prices"), payload=msgspec.json.encode(facts),
        headers=(("kind", kind),), id=1, delivery="d1", created_ms=START_MS, next_ms=START_MS,
    )  # fmt: skip


def sender(root: Path, http: FakeHttp, spec: JobSpec | None) -> PingSender:
    environ = {"KEY": "the-key", "API_TOKEN": "tok-123456"}
    return PingSender(
        http=http, clock=FakeClock(), spec_of=lambda _: spec, root=root, flush_logs=flush, environ=environ
    )


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
        (refused, "connect: no way to ***"),
        (make_response(status=404, body=b"no check the-key"), "answered 404: no check ***"),
    ):
        http = FakeHttp(answers={URL.format(""): answer})
        failure = await sender(tmp_path, http, make_spec(ping=BASE)).send(queued("success"))
        assert failure
        assert failure.reason.startswith(reason[:20])
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
    theirs = replace(own, is_own=False)
    assert await sender(tmp_path, http, make_spec(ping=theirs, policy=narrow)).send(queued("success")) is None
