"""Stored values as people read them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from spyweb.cli.project import Project
from spyweb.model import ChangeKind, JobId
from spyweb.store.interchange.value_json import TypeName
from spyweb.store.model.entries import Entry
from spyweb.subjects.state.commands import render
from spyweb.subjects.state.views import ChangeView, view_entry
from spyweb.words import describe_moment
from tests.fakes.clock import FakeClock

NOW_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z
PROJECT = cast(
    Project,
    SimpleNamespace(clock=FakeClock(), moment=lambda ms: describe_moment(ms, "Europe/Berlin")),
)


def change(kind: ChangeKind, old: object, new: object, job: str | None = None) -> ChangeView:
    return ChangeView(
        namespace="state",
        key="n",
        kind=kind,
        old=old,
        new=new,
        version=1,
        at_ms=NOW_MS,
        job=None if job is None else JobId(job),
    )


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("short", "short"),
        ("x" * 50, "x" * 50),
        ("x" * 51, "x" * 49 + "…"),
        ("a\nb\tc\r", "a\\nb\\tc\\r"),
        ("\n" * 30, "\\n" * 24 + "\\…"),
    ],
)
def test_a_value_in_a_list_is_one_line_of_50_characters_at_most(text: str, shown: str) -> None:
    assert render.brief(text) == shown
    assert len(render.brief(text)) <= render.WIDEST


@pytest.mark.parametrize(
    ("left_ms", "shown"),
    [
        (None, "-"),
        (1, "1s"),
        (1_000, "1s"),
        (1_001, "2s"),
        (3_599_500, "1h"),
        (3_600_001, "1h1m"),
        (90 * 86_400_000, "90d"),
        (-5, "1s"),
    ],
)
def test_how_long_an_entry_lives_is_rounded_up(left_ms: int | None, shown: str) -> None:
    assert render.ttl(None if left_ms is None else NOW_MS + left_ms, NOW_MS) == shown


def test_an_entry_is_shown_with_labels_and_its_whole_value() -> None:
    entry = Entry(value=b"v\n" * 40, version=7, created_ms=NOW_MS, updated_ms=NOW_MS + 1_500, expires_ms=None)
    assert render.entry_fields(view_entry("state", b"k\xff", entry), NOW_MS, "UTC") == [
        ("Key:", "k\\xff"),
        ("Value:", "v\n" * 40),
        ("Type:", "string"),
        ("Created:", "Thu 2026-01-01 00:00:00 UTC"),
        ("Updated:", "Thu 2026-01-01 00:00:01 UTC"),
        ("TTL:", "-"),
        ("Version:", "7"),
    ]


def test_a_key_of_several_lines_is_shown_in_one() -> None:
    entry = Entry(value=b"v", version=1, created_ms=0, updated_ms=0, expires_ms=None)
    view = view_entry("state", b"a\nb\t\xff", entry)
    assert render.entry_row(PROJECT, view)[0] == "a\\nb\\t\\xff"
    assert render.entry_fields(view, 0, "UTC")[0] == ("Key:", "a\\nb\\t\\xff")


@pytest.mark.parametrize(
    ("value", "kind", "shown"),
    [
        ("5", TypeName.STRING, "5"),
        ({"$base64": "/w=="}, TypeName.STRING, "\\xff"),
        ({"$base64": "/w=="}, TypeName.TABLE, '{"$base64":"/w=="}'),
        (None, TypeName.NULL, "null"),
        (True, TypeName.BOOLEAN, "true"),
    ],
)
def test_a_string_is_shown_as_it_is_and_all_else_as_json(value: object, kind: TypeName, shown: str) -> None:
    assert render.shown_value(value, kind) == shown


@pytest.mark.parametrize(
    ("seen", "line"),
    [
        (change(ChangeKind.CREATED, None, 5, "tick"), "created state n  5  by tick"),
        (change(ChangeKind.UPDATED, "a", {"b": 1}), 'updated state n  a -> {"b":1}'),
        (change(ChangeKind.DELETED, [1], None), "deleted state n  was [1]"),
        (change(ChangeKind.EXPIRED, 5, None), "expired state n  was 5"),
        (change(ChangeKind.UPDATED, "x" * 60, 1), f"updated state n  {'x' * 49}… -> 1"),
    ],
)
def test_a_change_is_one_line(seen: ChangeView, line: str) -> None:
    assert render.change_line(seen) == line
