"""What is typed, as the value that it means."""

from __future__ import annotations

import pytest

from spyweb.errors import Refused
from spyweb.model import NULL, Value
from spyweb.subjects.state.commands.change import parse_ttl, parse_value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5", 5),
        ("5.0", 5),
        ("-0.5", -0.5),
        ("true", True),
        ("null", NULL),
        ('"5"', b"5"),
        ('{"a": [1]}', {b"a": [1]}),
        ('{"$base64": "/w=="}', b"\xff"),
        ("[]", []),
        ("hello", b"hello"),
        ("v1.2.3", b"v1.2.3"),
        ("{broken", b"{broken"),
        ('{"$base64": "%"}', b'{"$base64": "%"}'),
        ("NaN", b"NaN"),
        ("", b""),
        ("gr\xf6\xdfe", "gr\xf6\xdfe".encode()),
        ("\udcff", b"\xff"),
        ("[" * 500, b"[" * 500),
    ],
)
def test_a_value_is_json_if_it_parses_else_text(text: str, value: Value) -> None:
    parsed = parse_value(text)
    assert parsed == value
    assert type(parsed) is type(value)


@pytest.mark.parametrize(("text", "ms"), [("", None), ("0", None), ("90", 90_000), ("0.5", 500), ("1h30m", 5_400_000)])
def test_a_ttl_is_seconds_or_a_duration_and_nothing_is_for_ever(text: str, ms: int | None) -> None:
    assert parse_ttl(text) == ms


@pytest.mark.parametrize("text", ["-1", "soon", "1x", "nan"])
def test_any_other_ttl_is_refused(text: str) -> None:
    with pytest.raises(Refused, match=r"^--ttl: "):
        parse_ttl(text)
