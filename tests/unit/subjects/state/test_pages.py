"""The page of what is stored, what its forms do, and stored values in lines and fields."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spyweb.model import NULL, RunId, Value
from spyweb.store.model.access import Scope
from spyweb.store.model.entries import Entry
from spyweb.subjects.state import pages
from spyweb.subjects.state.views import EntryView, Plain, view_entry
from tests.fakes.daemon_service import MARKUP, FakeDaemonService
from tests.fakes.dashboard import make_dashboard_service, page_of, post_form, signed_in

BILLING = "scope:billing"
SINCE = "/state?namespace=scope%3Abilling&key=since"


async def stored() -> FakeDaemonService:
    service = make_dashboard_service()
    await service.state.put(BILLING, b"since", b"monday", None)
    await service.state.put(BILLING, b"since", b"tuesday", None)
    await service.state.put(BILLING, b"rates", {b"eur": 1}, 3_600_000)
    await service.state.put("job:prices", b"last", b"<b>3</b>", None)
    return service


async def value_of(service: FakeDaemonService, key: bytes, namespace: str = BILLING) -> object:
    found = await service.state.entry(namespace, key)
    return found.value if found else None


async def test_it_lists_the_keys_of_a_namespace_with_their_values() -> None:
    page = await page_of("/state?namespace=scope:billing", await stored())
    assert "3\N{NO-BREAK SPACE}values in 2\N{NO-BREAK SPACE}places" in page
    assert re.findall(r"#one\"><bdi>(\w+)</bdi>", page) == ["rates", "since"]
    assert "<code>{&#34;eur&#34;:1}</code>" in page
    assert '<a href="/state?namespace=scope%3Abilling" aria-current="true">billing <small>2</small></a>' in page


async def test_a_prefix_narrows_them() -> None:
    service = await stored()
    page = await page_of("/state?namespace=scope:billing&prefix=si", service)
    assert page.count('#one">') == 1
    page = await page_of("/state?namespace=scope:billing&prefix=nothing", service)
    assert "No key begins with this text." in page


async def test_a_value_is_edited_as_what_its_type_says() -> None:
    service = await stored()
    put = "/state/put?namespace=scope%3Abilling&key=since"
    for text, kind, value in (
        ("42", "number", 42),
        ("true", "boolean", True),
        ('{"a": [1]}', "json", {"a": [1]}),
        ("a\r\nb", "text", "a\nb"),
    ):
        status, location, _ = await post_form(service, put, value=text, type=kind)
        assert (status, location) == (303, SINCE)
        assert await value_of(service, b"since") == value


@pytest.mark.parametrize(
    ("form", "words"),
    [
        ({"value": "many", "type": "number"}, "the value is no number"),
        ({"value": "1", "type": "boolean"}, "the value is not true or false"),
        ({"value": "{", "type": "json"}, "the value is not JSON"),
        ({"value": "x" * 2000, "type": "text"}, "over the limit of 1000"),
        ({"value": "x", "type": "text", "ttl": "soon"}, "expiry: "),
        ({"value": "x", "type": "text", "ttl": "0"}, "expiry: "),
        ({"value": "x", "type": "text", "version": "1"}, "it was changed meanwhile"),
    ],
)
async def test_what_can_not_be_stored_is_said_and_what_was_typed_stays(form: dict[str, str], words: str) -> None:
    service = await stored()
    status, _, page = await post_form(service, "/state/put?namespace=scope%3Abilling&key=since", None, **form)
    assert status == 422
    assert re.search(rf'role="alert">{re.escape(words)[:60]}', page) or words in page
    assert f">\n{form['value'].replace('{', '{')}</textarea>" in page
    assert 'aria-invalid="true"' in page
    assert await value_of(service, b"since") == "tuesday"


async def test_a_key_is_added_unless_it_is_there() -> None:
    service = await stored()
    add = "/state/add?namespace=scope%3Abilling"
    status, location, _ = await post_form(service, add, key="new ü", value="1", type="text", ttl="10m")
    assert (status, location) == (303, "/state?namespace=scope%3Abilling&key=new%20%C3%BC")
    found = await service.state.entry(BILLING, "new ü".encode())
    assert found
    assert found.expires_ms == service.clock.now_ms() + 600_000
    for key in ("since", ""):
        status, _, page = await post_form(service, add, key=key, value="x", type="text")
        assert status == 422
        assert re.search(r'name="key"[^>]* aria-invalid="true"', page)
    assert await value_of(service, b"since") == "tuesday"


async def test_an_empty_field_leaves_the_expiry_as_it_is() -> None:
    service = await stored()
    put = "/state/put?namespace=scope%3Abilling&key=rates"
    before = await service.state.entry(BILLING, b"rates")
    await post_form(service, put, value="1", type="number")
    after = await service.state.entry(BILLING, b"rates")
    assert before
    assert after
    assert after.expires_ms == before.expires_ms is not None
    await post_form(service, put, value="1", type="number", ttl="never")
    after = await service.state.entry(BILLING, b"rates")
    assert after
    assert after.expires_ms is None


async def test_a_version_is_brought_back_after_a_question() -> None:
    service = await stored()
    path = "/state/rollback?namespace=scope%3Abilling&key=since&version=1"
    assert "Restore version 1 of since?</h1>" in (await post_form(service, path))[2]
    assert (await post_form(service, path, sure="yes"))[:2] == (303, SINCE)
    assert await value_of(service, b"since") == "monday"
    status, _, page = await post_form(service, path.replace("version=1", "version=77"), sure="yes")
    assert status == 409
    assert "there is no version 77" in page


async def test_a_lock_is_broken_after_a_question_that_names_who_is_hit() -> None:
    service = await stored()
    await service.state.store.locks.acquire(b"export <b>", b"export/2", RunId(2), 60_000)
    page = await page_of("/state?namespace=global", service)
    assert "<code>export &lt;b&gt;</code>" in page
    assert "Run 2 of backup holds it and is not interrupted," in page
    path = "/state/locks/break?name=export%20%3Cb%3E"
    status, _, page = await post_form(service, path)
    assert status == 200
    assert "Break the lock export &lt;b&gt;?</h1>" in page
    assert "Run 2 of backup holds it and is not interrupted, so two runs" in page
    assert (await post_form(service, path, sure="yes", back="/state"))[:2] == (303, "/state")
    assert await service.state.locks() == []
    assert (await post_form(service, path))[0] == 404


async def test_keys_and_values_of_scripts_are_text_and_may_be_any_bytes() -> None:
    service = make_dashboard_service()
    await service.state.put("scope:<b>", b"\xff<i>", MARKUP.encode(), None)
    await service.state.put("scope:<b>", b"\xff<i>", {MARKUP.encode(): b"\xff", b"b": [b"<i>"]}, None)
    page = await page_of("/state?namespace=scope%3A%3Cb%3E&key=%FF%3Ci%3E", service)
    for hostile in ("<script>alert", "<i>", "<b>"):
        assert hostile not in page
    assert "key=%FF%3Ci%3E" in page
    assert "&lt;script&gt;" in page
    put = "/state/put?namespace=scope%3A%3Cb%3E&key=%FF%3Ci%3E"
    assert (await post_form(service, put, value="1", type="number"))[0] == 303
    assert await value_of(service, b"\xff<i>", "scope:<b>") == 1


async def test_a_value_that_is_too_long_is_not_put_into_a_field() -> None:
    service = make_dashboard_service()
    await service.state.store.values.set("global", b"long", b"x" * 100_000)
    page = await page_of("/state?namespace=global&key=long", service)
    assert "The value is too long to edit here." in page
    assert "<textarea" not in page
    assert "x" * 4001 not in page


async def test_whoever_may_see_some_jobs_sees_what_those_keep() -> None:
    service = await stored()
    await service.state.store.locks.acquire(b"export", b"me", None, 60_000)
    limited = await signed_in(service, Scope.STATE, jobs=("prices",))
    page = await page_of("/state?namespace=job:prices", service, limited)
    assert "Keys of <bdi>prices</bdi>" in page
    assert "&lt;b&gt;3&lt;/b&gt;" in page
    for other in ("billing", "export"):
        assert other not in page
    await page_of(SINCE, service, limited, status=403)
    await page_of(f"{SINCE}&live=x", service, limited, status=403)
    for job, status in (("prices", 303), ("backup", 403)):
        path = f"/state/put?namespace=job:{job}&key=last"
        assert (await post_form(service, path, limited, value="1", type="text"))[0] == status
    assert (await post_form(service, "/state/locks/break?name=export", limited, sure="yes"))[0] == 403


def test_fields_are_read_by_their_type() -> None:
    assert pages.read_field("1.5", "number") == 1.5
    assert pages.read_field(" 7 ", "number") == 7
    assert pages.read_field("", "text") == b""
    assert pages.read_field("\udcff", "text") == b"\xff"
    assert pages.read_field('"a"', "json") == b"a"
    for text, kind in (("", "number"), ('"1"', "number"), ("yes", "boolean"), ("nan", "number"), ("[1", "json")):
        with pytest.raises(ValueError, match="is "):
            pages.read_field(text, kind)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text(max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=1), inner, max_size=3),
    max_leaves=8,
)


def entry(value: Value, version: int = 1, key: bytes = b"k") -> EntryView:
    return view_entry("state", key, Entry(value=value, version=version, created_ms=1, updated_ms=version))


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (b"a\nb", pages.FieldType.TEXT, "a\nb"),
        (b"a\r\nb", pages.FieldType.JSON, '"a\\r\\nb"'),
        (b"\xff", pages.FieldType.JSON, '{\n  "$base64": "/w=="\n}'),
        (True, pages.FieldType.BOOLEAN, "true"),
        (1, pages.FieldType.NUMBER, "1"),
        (1.5, pages.FieldType.NUMBER, "1.5"),
        (NULL, pages.FieldType.JSON, "null"),
        ([1, b"a"], pages.FieldType.JSON, '[\n  1,\n  "a"\n]'),
    ],
)
def test_a_field_shows_a_value_so_that_it_comes_back_unchanged(value: Value, kind: pages.FieldType, text: str) -> None:
    edited = pages.edit_value(entry(value))
    assert (edited.type, edited.text, edited.is_too_long) == (kind, text, False)


def test_what_is_very_long_is_cut_and_says_so() -> None:
    values: list[Value] = [b"x" * (pages.LONGEST_EDITED + 1), [1] * pages.LONGEST_EDITED]
    for value in values:
        edited = pages.edit_value(entry(value))
        assert (len(edited.text), edited.is_too_long) == (pages.LONGEST_EDITED, True)


def test_versions_say_what_they_changed() -> None:
    values: list[Value] = [{b"a": 3, b"c": [1]}, {b"a": 1, b"b": 2}]
    newest_first = [entry(value, version=2 - n) for n, value in enumerate(values)]
    second, first = pages.show_versions(newest_first, 10)
    assert [(each.path, each.old, each.new) for each in second.changes] == [
        ("a", "1", "3"),
        ("c", None, "[1]"),
        ("b", "2", None),
    ]
    assert (first.is_first, first.preview, list(first.changes)) == (True, '{"a":1,"b":2}', [])


def test_very_many_changes_are_cut() -> None:
    many: dict[bytes | bool | int | float, Value] = {str(n).encode(): n for n in range(pages.CHANGES_SHOWN + 1)}
    second, _ = pages.show_versions([entry(many, 2), entry({b"x": 1})], 10)
    assert (len(second.changes), second.left_out) == (pages.CHANGES_SHOWN, True)


@pytest.mark.parametrize(
    ("old", "new", "changes"),
    [
        (1, 1, []),
        (1, 2, [("", "1", "2")]),
        (1, 1.0, [("", "1", "1.0")]),
        (1, True, [("", "1", "true")]),
        ({"a": 1}, [1], [("", '{"a":1}', "[1]")]),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": 3}, "d": None}, [
            ("a.b", "1", "3"), ("a.c", "2", None), ("d", None, "null"),
        ]),
        ([1, 2], [1, 3, 4], [("2", "2", "3"), ("3", None, "4")]),
    ],
)  # fmt: skip
def test_each_place_that_differs_is_named(old: Plain, new: Plain, changes: list[tuple[object, ...]]) -> None:
    assert list(pages.diff(old, new)) == changes


def test_of_more_versions_than_are_shown_the_last_is_compared_too() -> None:
    versions = pages.show_versions([entry(3, 3), entry(2, 2), entry(1, 1)], 2)
    assert [(len(each.changes), each.is_first) for each in versions] == [(1, False), (1, False)]
    assert pages.show_versions([], 9) == []


@given(VALUES, VALUES)
def test_values_differ_where_and_only_where_a_place_is_named(old: Plain, new: Plain) -> None:
    assert list(pages.diff(new, new)) == []
    assert bool(list(pages.diff(old, new))) == (repr(old) != repr(new) and not _same_tables(old, new))


def _same_tables(old: object, new: object) -> bool:
    """Tell whether two values are the same but for the order of keys."""
    if isinstance(old, dict) and isinstance(new, dict):
        return old.keys() == new.keys() and all(_same_tables(old[name], new[name]) for name in old)
    if isinstance(old, list) and isinstance(new, list):
        return len(old) == len(new) and all(map(_same_tables, old, new))
    return type(old) is type(new) and old == new
