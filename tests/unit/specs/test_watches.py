"""What `on` may say, and which changes it is about."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from spyweb.model import WRITTEN, ChangeKind, HistoryRule, JobId, On
from spyweb.specs.watches import concerns, history_rules, scope_of, watches_of
from spyweb.store.model.entries import WantedChange, Watch
from tests.fakes.harness import make_spec
from tests.fakes.triggered import make_wanted, read_on


def change(namespace: str, key: bytes = b"k", kind: ChangeKind = ChangeKind.UPDATED) -> WantedChange:
    return replace(make_wanted(key, namespace=namespace), kind=kind)


def on(**settings: object) -> On:
    (one,) = read_on(settings)
    return one


def test_without_a_scope_every_scope_is_meant_and_nothing_else() -> None:
    trigger = on()
    assert concerns(trigger, change("scope:orders"))
    assert concerns(trigger, change("scope:"))
    assert not any(concerns(trigger, change(name)) for name in ("state", "state@web", "global", "job:scope:x"))


@pytest.mark.parametrize(
    ("scope", "namespace"),
    [
        ("orders", "scope:orders"),
        ("", "scope:"),
        ("State", "scope:State"),
        ("jobs", "scope:jobs"),
        ("state", "state"),
        ("state@web-01", "state@web-01"),
        ("state@local", "state"),
        ("global", "global"),
        ("job:prices", "job:prices"),
        ("scope:state", "scope:state"),
        ("scope:job:x", "scope:job:x"),
    ],
)
def test_a_scope_is_one_of_scripts_unless_it_names_another_family(scope: str, namespace: str) -> None:
    trigger = on(scope=scope)
    assert (trigger.namespace, trigger.is_prefix) == (namespace, False)
    assert concerns(trigger, change(namespace))
    assert not concerns(trigger, change(namespace + "x"))


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("*", [b"", b"a", b"a\n\xff\0"], []),
        ("user:*", [b"user:", b"user:1"], [b"USER:1", b"xuser:1"]),
        ("a?c", [b"abc", "a\u00e4c".encode()], [b"ac", b"abbc"]),
        ("100%_[x]", [b"100%_[x]"], [b"1000_x"]),
    ],
)
def test_a_key_is_a_pattern_of_stars_and_question_marks(
    pattern: str, matching: list[bytes], others: list[bytes]
) -> None:
    trigger = on(key=pattern)
    assert all(concerns(trigger, change("scope:x", key)) for key in matching)
    assert not any(concerns(trigger, change("scope:x", key)) for key in others)


def test_an_expiry_counts_only_where_it_is_named() -> None:
    assert on().kinds == WRITTEN
    assert not concerns(on(), change("scope:x", kind=ChangeKind.EXPIRED))
    assert concerns(on(events="expired"), change("scope:x", kind=ChangeKind.EXPIRED))


def test_what_the_store_is_to_watch_is_what_concerns_each_enabled_job() -> None:
    both = read_on([{"scope": "orders", "key": "a*", "events": ["deleted"]}, {}])
    specs = [
        make_spec("one", on=both + both[:1]),
        make_spec("two", on=both[1:]),
        make_spec("off", on=both, enabled=False),
    ]
    orders = Watch(job=JobId("one"), namespace="scope:orders", key=b"a*", kinds=frozenset({ChangeKind.DELETED}))
    everything = Watch(job=JobId("one"), namespace="scope:", is_prefix=True)
    assert watches_of(specs) == [orders, everything, replace(everything, job=JobId("two"))]


def test_scripts_and_people_know_a_scope_without_its_family() -> None:
    assert [scope_of(name) for name in ("scope:orders", "state@web", "job:x")] == ["orders", "state@web", "job:x"]


def test_a_pattern_that_is_too_long_is_refused() -> None:
    with pytest.raises(
        AssertionError, match=r"key='on.key', reason='a pattern has 2000 bytes, at most 1024 are allowed'"
    ):
        on(key="*a" * 1000)


MANY, WEEK = HistoryRule(versions=20), HistoryRule(age_ms=604_800_000)


def test_a_job_decides_for_its_own_values_and_config_toml_for_the_others() -> None:
    silent, keeper = make_spec(JobId("silent")), replace(make_spec(JobId("keeper")), history=WEEK)
    configured = {"state": MANY, "job:silent": MANY, "job:keeper": MANY}
    rules = history_rules(configured, [silent, keeper])
    assert rules == {"state": MANY, "job:silent": MANY, "job:keeper": WEEK}
