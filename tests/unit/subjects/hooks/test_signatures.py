"""Signatures as GitHub and Stripe make them, and everything that is none."""

from __future__ import annotations

import pytest
from multidict import CIMultiDict

from spyweb.model import HookSigning, JobId
from spyweb.outbox.send import headers_of, signature_of
from spyweb.store.model.messages import Channel, QueuedMessage, Target
from spyweb.subjects.hooks.signatures import TOLERANCE_S, is_signed, stamped
from tests.fakes.hooks import SECRET, signed

NOW_S = 1_767_225_600
BODY = b'{"action":"opened"}'
STAMPED = (HookSigning.STRIPE, HookSigning.SPYWEB)


def check(signing: HookSigning, headers: CIMultiDict[str], body: bytes = BODY, now_s: float = NOW_S) -> bool:
    return is_signed(signing, SECRET.encode(), headers, body, now_s)


def test_the_example_of_githubs_documentation_is_signed() -> None:
    signature = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    assert check(HookSigning.GITHUB, CIMultiDict({"X-Hub-Signature-256": signature}), b"Hello, World!")


@pytest.mark.parametrize("signing", HookSigning)
def test_a_sender_that_knows_the_secret_is_let_in_and_no_other(signing: HookSigning) -> None:
    assert check(signing, signed(signing, BODY, NOW_S))
    assert not check(signing, signed(signing, BODY, NOW_S, secret=SECRET + "x"))
    assert not check(signing, CIMultiDict())


@pytest.mark.parametrize("signing", [each for each in HookSigning if each is not HookSigning.PLAIN])
def test_a_signature_is_of_one_body_alone(signing: HookSigning) -> None:
    assert not check(signing, signed(signing, BODY, NOW_S), BODY + b" ")


@pytest.mark.parametrize("signing", HookSigning)
def test_a_signature_of_another_kind_is_none(signing: HookSigning) -> None:
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
