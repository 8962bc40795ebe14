"""One cycle: the stages in order, and what a hook may do at each."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest
from msgspec.structs import replace

from spyweb.errors import FetchError
from spyweb.lua.hooks import HOOK_NAMES
from spyweb.model import Ending, Notification, OnHookError, Outcome, Webhook
from tests.fakes.monitor import BEGINS, URL, Hook, HookError, Shop, make_monitor, page, shop

ALL = tuple(hook for hook in HOOK_NAMES if not hook.startswith("override_"))  # those that take turns in one cycle
FETCH = f"fetch {URL}"
LAMP = {"title": "Lamp", "price": "5"}
DESK = {"title": "Desk", "price": "90"}
Table = dict[bytes, object]


def same(argument: object, _ctx: object) -> object:
    return argument


def gives(value: object) -> Hook:
    return lambda _argument, _ctx: value


def raises(text: str) -> Hook:
    def hook(_argument: object, _ctx: object) -> object:
        raise HookError(text)

    return hook


def keeps(seen: list[Any]) -> Hook:
    """A hook that changes nothing."""

    def hook(argument: object, _ctx: object) -> object:
        seen.append(argument)
        return argument

    return hook


def keeps_ctx(seen: list[dict[str, object]]) -> Hook:
    def hook(argument: object, ctx: dict[str, object]) -> object:
        seen.append(dict(ctx))
        return argument

    return hook


async def run_with(s: Shop, hooks: Mapping[str, Hook], **changes: Any) -> Ending:
    s.vms.hooks = dict(hooks)
    return await s.run(make_monitor(lua=True, **changes))


SKIPS = {
    "before_fetch": ["before_fetch"],
    "after_fetch": [FETCH, "after_fetch"],
    "before_store": [FETCH, "extract", "before_store"],
}


@pytest.mark.parametrize("nothing", [None, False])
@pytest.mark.parametrize("name", SKIPS)
async def test_nil_or_false_from_these_skips_the_rest_and_the_end_hooks_still_come(
    s: Shop, name: str, nothing: object
) -> None:
    ending = await run_with(s, {name: gives(nothing), **dict.fromkeys(ALL[-4:], same)})
    assert ending.outcome is Outcome.SUCCESS
    assert s.story == ["load", *SKIPS[name], "on_success", "on_finally", "on_finished"]
    assert await s.records() == []


async def test_after_extract_with_nothing_means_no_items_and_the_cycle_goes_on(s: Shop) -> None:
    await run_with(s, {"after_extract": gives(None), "on_success": same})
    assert s.story == ["load", FETCH, "extract", "after_extract", "on_success"]
    assert await s.records() == []


async def test_a_transport_failure_that_is_left_as_it_is_ends_in_on_error(s: Shop) -> None:
    told: list[object] = []
    s.http.answers[URL] = FetchError("connect", "could not connect")
    hooks = {"after_fetch": same, "on_success": same, "on_error": keeps(told)}
    ending = await run_with(s, {**hooks, "on_finally": same})
    assert (ending.outcome, ending.reason) == (Outcome.FAILED, "could not connect")
    assert s.story == ["load", FETCH, "after_fetch", "on_error", "on_finally"]
    assert told == [b"could not connect"]


async def test_a_transport_failure_that_after_fetch_takes_is_no_failure(s: Shop) -> None:
    s.http.answers[URL] = FetchError("connect", "could not connect")
    ending = await run_with(s, {"after_fetch": gives(None), "on_success": same})
    assert ending.outcome is Outcome.SUCCESS
    assert s.story == ["load", FETCH, "after_fetch", "on_success"]


@pytest.mark.parametrize("nothing", [None, False])
async def test_override_fetch_must_return_a_table(s: Shop, nothing: object) -> None:
    ending = await run_with(s, {"override_fetch": gives(nothing), "after_fetch": same, "on_error": same})
    assert ending.reason == "override_fetch must return a response table, or a table with an error in it"
    assert s.story == ["load", "override_fetch", "on_error"]


@pytest.mark.parametrize(
    ("error", "told"),
    [
        ("no renderer", ("no renderer", "unknown")),
        ({"message": "late", "kind": "timeout"}, ("late", "timeout")),
        ({"error": "gone", "kind": "dns"}, ("gone", "dns")),
    ],
)
async def test_override_fetch_may_say_that_it_failed(s: Shop, error: object, told: tuple[str, str]) -> None:
    seen: list[Table] = []
    ending = await run_with(s, {"override_fetch": gives({"error": error}), "after_fetch": keeps(seen)})
    assert ending.reason == told[0]
    assert seen[0][b"error"] == {b"message": told[0].encode(), b"kind": told[1].encode()}


async def test_an_error_in_override_fetch_is_a_failed_fetch(s: Shop) -> None:
    ending = await run_with(s, {"override_fetch": raises("hooks.lua:3: boom"), "after_fetch": same})
    assert ending.reason == "override_fetch: hooks.lua:3: boom"
    assert s.story == ["load", "override_fetch", "after_fetch"]


async def test_an_error_in_override_extract_is_no_items(s: Shop) -> None:
    ending = await run_with(s, {"override_extract": raises("boom")})
    assert ending.outcome is Outcome.SUCCESS
    assert s.story == ["load", FETCH, "override_extract"]
    assert await s.records() == []


async def test_without_items_there_is_nothing_to_store_and_before_store_is_not_asked(s: Shop) -> None:
    s.extractor.otherwise = []
    await run_with(s, {"after_extract": same, "before_store": raises("items[1] is nil"), "on_success": same})
    assert s.story == ["load", FETCH, "extract", "after_extract", "on_success"]
    assert s.host.lines == []


@pytest.mark.parametrize("broken", [raises("hooks.lua:7: boom"), gives("a string"), gives(True)])
@pytest.mark.parametrize("name", [name for name in ALL[:6] if name != "filter_item"])
async def test_an_error_in_another_hook_is_as_if_it_were_absent_and_is_logged(s: Shop, name: str, broken: Hook) -> None:
    ending = await run_with(s, {name: broken})
    assert ending.outcome is Outcome.SUCCESS
    assert await s.records() == [LAMP, DESK]
    assert len(s.host.lines) == 1
    assert s.host.lines[0].startswith(f"error {name}: ")


@pytest.mark.parametrize(
    "name", ["before_fetch", "override_fetch", "override_extract", "after_extract", "before_store"]
)
async def test_where_the_settings_say_so_an_error_in_a_hook_fails_the_cycle(s: Shop, name: str) -> None:
    hooks = {name: raises("hooks.lua:7: boom"), "on_error": same}
    ending = await run_with(s, hooks, on_hook_error=OnHookError.FAIL)
    assert (ending.outcome, ending.reason) == (Outcome.FAILED, f"{name}: hooks.lua:7: boom")
    assert ending.traceback == "stack traceback:"
    assert s.story[-1] == "on_error"
    assert await s.records() == []


async def test_keywords_are_looked_for_in_the_search_fields_and_case_does_not_count(s: Shop) -> None:
    await s.run(make_monitor(keywords=("LAMP", "desk"), search_fields=("title",)))
    await s.run(make_monitor(keywords=("90",), search_fields=("title",)))
    assert await s.records() == [LAMP, DESK]
    assert [record.matches for record in await s.store.records.list()] == [("desk",), ("LAMP",)]


async def test_an_item_for_which_filter_item_failed_is_judged_by_the_keywords(s: Shop) -> None:
    await run_with(s, {"filter_item": gives({"fields": {"title": {}}})}, keywords=("desk",))
    assert await s.records() == [DESK]
    assert s.host.lines[0] == f"error filter_item: string expected, got table ({BEGINS})"


UNUSABLE = "it returned a value that can't be used: "
NOT_UNDERSTOOD = [
    ("before_fetch", "a string", "error", f"{UNUSABLE}table expected, got string"),
    ("after_extract", {"title": "x"}, "error", f"{UNUSABLE}array expected, got a table with names in it"),
    ("before_store", [{"fields": {"x": {}}}], "error", f"{UNUSABLE}item 1: field 'x': string expected, got table"),
    ("before_fetch", {"header": {}}, "warn", "unknown name 'header' in what it returned: did you mean 'headers'?"),
]


@pytest.mark.parametrize(("name", "value", "level", "told"), NOT_UNDERSTOOD)
async def test_what_a_hook_returned_and_nobody_understood_is_logged_with_its_line(
    s: Shop, name: str, value: object, level: str, told: str
) -> None:
    ending = await run_with(s, {name: gives(value)}, on_hook_error=OnHookError.SKIP)
    assert ending.outcome is Outcome.SUCCESS
    (line,) = s.host.lines
    assert line.startswith(f"{level} {name}: {told}")
    assert line.endswith(f" ({BEGINS})")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("before_fetch", {"url": URL, "mine": 1}),
        ("after_fetch", {"ok": True, "request": {}}),
        ("override_fetch", {"body": ""}),
        ("override_fetch", {"error": "no", "kind": "dns"}),
    ],
)
async def test_what_a_script_keeps_for_itself_in_a_table_is_no_mistake(s: Shop, name: str, value: object) -> None:
    await run_with(s, {name: gives(value)})
    assert s.host.lines == []


async def test_an_item_is_new_once_by_its_hash_fields(s: Shop) -> None:
    s.extractor.otherwise = [LAMP, {**LAMP, "price": "6"}, DESK, DESK]
    await s.run(make_monitor(hash_fields=("title",)))
    assert await s.records() == [LAMP, DESK]
    await s.run(make_monitor(hash_fields=("title",)))
    assert len(await s.records()) == 2


async def test_only_new_items_are_announced_and_without_any_nobody_is_asked(s: Shop) -> None:
    seen: list[object] = []
    hooks: dict[str, Hook] = {"before_notify": keeps(seen)}
    s.extractor.otherwise = [LAMP]
    await run_with(s, hooks)
    s.extractor.otherwise = [LAMP, DESK]
    await run_with(s, hooks)
    await run_with(s, hooks)
    told = [[cast(Table, cast(Table, item)[b"fields"])[b"title"] for item in cast(list[object], each)] for each in seen]
    assert told == [[b"Lamp"], [b"Desk"]]


async def sent(s: Shop) -> list[tuple[str, bytes]]:
    found = []
    for target in await s.store.outbox.targets():
        message = await s.store.outbox.next(target, s.clock.now_ms())
        assert message
        found.append((str(target.channel), message.payload))
    return sorted(found)


BOTH: dict[str, Any] = {
    "webhook": Webhook(url="http://hook.example/"),
    "notification": Notification(title="{item_count}", body="{title}"),
}


@pytest.mark.parametrize(("silent", "left"), [("before_notify", ["webhook"]), ("before_webhook", ["desktop"])])
async def test_nil_or_false_silences_one_and_not_the_other(s: Shop, silent: str, left: list[str]) -> None:
    await run_with(s, {silent: gives(False)}, **BOTH)
    assert [channel for channel, _ in await sent(s)] == left
    assert len(await s.records()) == 2


async def test_the_telemetry_of_a_cycle_has_every_stage(s: Shop) -> None:
    seen: list[dict[str, object]] = []
    hooks: dict[str, Hook] = {"on_finally": keeps_ctx(seen)}
    s.http.answers[URL] = page(status=404)
    await run_with(s, {**hooks, "before_fetch": same, "after_extract": raises("boom")})
    told = cast("dict[str, list[dict[str, object]]]", seen[0]["telemetry"])["stages"]
    assert [(stage["name"], stage["status"]) for stage in told if stage["status"] != "inactive"] == [
        ("before_fetch", "success"),
        ("fetch", "error"),
        ("extract", "success"),
        ("after_extract", "error"),
        ("filter", "success"),
        ("store", "success"),
    ]
    assert len(told) == 15
    assert {stage["error"] for stage in told if "error" in stage} == {"http status: 404", "boom"}
    assert told[0]["mem_delta_bytes"] == 10


async def test_a_page_with_other_ways_of_spelling_is_told_to_the_extractor_as_it_came(s: Shop) -> None:
    s.http.answers[URL] = replace(page(kind=b"text/html; charset=\xe9"), url=b"http://shop.example/final")
    await s.run()
    assert (s.extractor.pages[0].content_type, s.extractor.pages[0].url) == (
        "text/html; charset=é",
        "http://shop.example/final",
    )


async def test_where_nothing_came_nothing_is_written(tmp_path: Path) -> None:
    async with shop(tmp_path) as s:
        s.http.answers[URL] = FetchError("dns", "no such host")
        await s.start(make_monitor(debug=True))
    assert not list(tmp_path.rglob("shop-*"))


async def test_a_folder_that_can_not_be_written_costs_the_files_only(tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs/shop").write_text("a file where the folder should be")
    async with shop(tmp_path) as s:
        assert (await s.start(make_monitor(debug=True))).outcome is Outcome.SUCCESS


async def test_a_debug_run_that_fails_shows_how_far_it_came(tmp_path: Path) -> None:
    async with shop(tmp_path) as s:
        s.http.answers[URL] = FetchError("dns", "no such host")
        ending = await s.start(make_monitor(), debug=True)
    result = cast("dict[str, object]", ending.preview)
    stages = cast("list[dict[str, object]]", result["stages"])
    assert (ending.reason, stages[2]["error"], result["files"]) == ("no such host", "no such host", [])
    assert (result["trouble"], result["http_status"], result["extracted"]) == ("no such host", None, None)


@pytest.mark.parametrize(("items", "outcome"), [([], Outcome.FAILED), ([{"title": "x"}], Outcome.SUCCESS)])
async def test_a_debug_run_says_that_the_page_could_not_be_fetched(
    tmp_path: Path, items: list[dict[str, str]], outcome: Outcome
) -> None:
    async with shop(tmp_path) as s:
        s.http.answers[URL] = page(status=404)
        s.extractor.otherwise = items
        ending = await s.start(make_monitor(), debug=True)
    result = cast("dict[str, object]", ending.preview)
    assert (ending.outcome, result["trouble"], result["extracted"]) == (outcome, "http status: 404", len(items))


async def test_an_error_page_that_is_expected_is_a_page(tmp_path: Path) -> None:
    async with shop(tmp_path) as s:
        s.http.answers[URL], s.extractor.otherwise = page(status=404), []
        ending = await s.start(make_monitor(expect_status=((404, 404),)), debug=True)
    assert ending.preview
    assert (ending.outcome, ending.preview["trouble"]) == (Outcome.SUCCESS, "")
