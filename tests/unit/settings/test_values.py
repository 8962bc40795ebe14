from __future__ import annotations

from collections.abc import Callable
from datetime import date, time

import pytest

from spyweb.model import HistoryRule, Overlap
from spyweb.settings.values import (
    boolean,
    duration,
    history,
    one_line,
    one_of,
    public_url,
    size,
    text,
    texts,
    timezone,
    whole,
)


@pytest.mark.parametrize(
    ("read", "value", "reason"),
    [
        (boolean, 1, "expected true or false, not 1"),
        (boolean, "true", "expected true or false, not 'true'"),
        (text, 5, "expected text, not 5"),
        (one_line, " ", "can't be blank"),
        (one_line, "a\nb", "line breaks"),
        (texts, "a", "expected a list of texts, not 'a'"),
        (texts, ["a", 1], "expected text, not 1"),
        (whole(1, 9), True, "expected a whole number, not true"),
        (whole(1, 9), 1.0, "expected a whole number, not 1.0"),
        (whole(1, 9), 0, "must be at least 1, not 0"),
        (whole(1, 9), 10, "must be at most 9, not 10"),
        (duration(1_000), "5ms", "must be at least 1s, not 5ms"),
        (duration(0, 1_000), "1m", "must be at most 1s, not 1m"),
        (duration(), [1], "expected a number of seconds, .* not a list"),
        (size(1 << 20, 1 << 30), 5, "must be at least 1MB, not 5B"),
        (size(0, 1), {}, "expected a number of bytes, .* not a table"),
        (one_of(Overlap), "skp", 'expected "skip", "queue", "replace" or "allow", not \'skp\'; did you mean "skip"'),
        (one_of(Overlap), 5, "not 5"),
        (public_url, "spyweb.example.org", 'expected an address such as "https://spyweb.example.org"'),
        (public_url, "ftp://example.org", "expected an address such as"),
        (public_url, "https://", "expected an address such as"),
        (public_url, "https://[::1", "expected an address such as"),
        (public_url, "https://example.org:99999", "expected an address such as"),
        (public_url, "https://exa mple.org", "expected an address such as"),
        (public_url, "https://exam\nple.org", "expected an address such as"),
        (public_url, "https://bücher.example", "expected an address such as"),
        (public_url, "https://me:pass@example.org", "expected an address without user name"),
        (public_url, "https://example.org/?x=1", "expected an address without user name"),
        (public_url, "https://example.org/#x", "expected an address without user name"),
        (public_url, 5, "expected text"),
        (timezone, "Europe/Berln", "no time zone 'Europe/Berln'; did you mean \"Europe/Berlin\""),
        (timezone, "CEST", '^no time zone .*; expected a name such as "Europe/Berlin"$'),
        (timezone, "EDT", '^no time zone .*; expected a name such as "Europe/Berlin"$'),
        (timezone, "berlin", r'^no time zone .*; did you mean "Europe/Berlin"\?$'),
        (timezone, "New York", r'^no time zone .*; did you mean "America/New_York"\?$'),
        (timezone, "europe/berln", r'^no time zone .*; did you mean "Europe/Berlin"\?$'),
        (timezone, "utc ", r'^no time zone .*; did you mean "UTC"\?$'),
        (timezone, "../etc/passwd", "no time zone"),
        (timezone, "Europe", "no time zone"),
        (timezone, "", "no time zone"),
        (timezone, 3, "expected text"),
        (history, {"state@local": 3}, 'the agent "local" is the one of "state"'),
        (text, {"a": 1}, "not a table"),
        (text, time(10), "not a time"),
        (text, date(2026, 1, 1), "not a date"),
    ],
)
def test_a_wrong_value_says_what_was_expected(read: Callable[[object], object], value: object, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        read(value)


def test_an_endless_value_is_cut_in_the_message() -> None:
    with pytest.raises(ValueError, match=r"\.\.\.") as caught:
        boolean("x" * 10_000)
    assert len(str(caught.value)) < 200


def test_right_values_come_out_in_spyweb_s_terms() -> None:
    assert one_of(Overlap)("queue") is Overlap.QUEUE
    assert timezone("Australia/Lord_Howe") == "Australia/Lord_Howe"
    assert texts(["a", "b"]) == ("a", "b")
    assert duration()("1h") == 3_600_000


def test_history_names_every_namespace_whose_rule_is_wrong() -> None:
    week = HistoryRule(age_ms=7 * 86_400_000)
    assert history({"state": 3, "job:b": "7d"}) == {"state": HistoryRule(versions=3), "job:b": week}
    with pytest.raises(ValueError, match=r"^state: must be at least 1, not 0; .*; also global: expected a number of"):
        history({"state": 0, "job:b": "7d", "global": "soon"})


@pytest.mark.parametrize("name", ["orders", "scope", "job:", "state@", "State", "state\n", "", "globals"])
def test_history_of_what_is_no_namespace_is_refused_since_nothing_would_be_kept(name: str) -> None:
    with pytest.raises(ValueError, match='no namespace: expected "state", "state@AGENT", "scope:NAME", "job:ID"'):
        history({name: 3})


@pytest.mark.parametrize("name", ["state", "global", "state@a", "scope:", "scope:a b\n", "job:prices"])
def test_history_takes_every_namespace(name: str) -> None:
    assert history({name: 3}) == {name: HistoryRule(versions=3)}


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ("", ""),
        ("https://spyweb.example.org/", "https://spyweb.example.org"),
        ("http://10.0.0.2:7979/sub//", "http://10.0.0.2:7979/sub"),
        ("http://[::1]:7979", "http://[::1]:7979"),
    ],
)
def test_the_address_of_a_site_ends_without_a_slash(given: str, read: str) -> None:
    assert public_url(given) == read
