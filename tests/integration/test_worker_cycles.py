"""A monitor's files and its cycle, hook by hook: in a real worker, with the test in the daemon's place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from spyweb.lua import wire
from spyweb.lua.hooks import HOOK_NAMES, LOAD, UNLOADED, is_defined
from spyweb.lua.wire import Ended, Why
from tests.fakes.worker_driver import End, WorkerDriver

ITEMS: list[dict[str, object]] = [
    {"fields": {"title": "Tea", "link": "/tea"}, "matches": ["tea"]},
    {"fields": {"title": "Cup", "link": "/cup"}, "matches": []},
]


@dataclass(frozen=True)
class Report:
    """What a cycle told of one hook."""

    defined: int
    memory: int
    status: bytes | None = None
    value: Any = None
    error: bytes | None = None
    traceback: bytes | None = None


@dataclass
class Daemon:
    """Asks for the hooks of one cycle, one after the other."""

    answers: list[Sequence[object]]
    reports: list[Report] = field(default_factory=list)

    def __call__(self, arguments: Sequence[Any]) -> Sequence[object]:
        self.reports.append(Report(*arguments))
        return self.answers.pop(0) if self.answers else ()

    @property
    def values(self) -> list[Any]:
        return [report.value for report in self.reports[1:]]


def prepare(worker: WorkerDriver, hooks: str, defer: str | None = None) -> None:
    more = [] if defer is None else [("jobs/x/defer.lua", defer)]
    assert worker.load(1, hooks, name="jobs/x/hooks.lua", more=more) is None


def cycle(
    worker: WorkerDriver, *answers: Sequence[object], run: int = 1, ctx: Mapping[str, object] | None = None
) -> tuple[Daemon, End]:
    """A cycle whose VM has executed its files; what it told of the hooks asked for, and its end."""
    daemon = begin(worker, *answers, run=run, ctx=ctx)
    return daemon, worker.end(run)


def begin(
    worker: WorkerDriver,
    *answers: Sequence[object],
    run: int = 1,
    ctx: Mapping[str, object] | None = None,
    cpu_ms: int = 10_000,
) -> Daemon:
    worker.call(99, 1, "load")
    assert worker.end(99).ended == Ended.SUCCESS
    daemon = worker.handlers["_hook"] = Daemon(list(answers))
    worker.call(run, 1, "cycle", ctx or {}, cpu_ms=cpu_ms)
    return daemon


# Files


def test_every_file_is_compiled_when_its_vm_is_made(worker: WorkerDriver) -> None:
    reason = worker.load(1, "x = 1", name="jobs/x/hooks.lua", more=[("jobs/x/defer.lua", "y = 1\ny = = 2")])

    assert reason == "jobs/x/defer.lua:2: unexpected symbol near '='"


def test_a_further_file_that_does_not_fit_is_named(worker: WorkerDriver) -> None:
    big = "--" + "x" * 2_000_000
    reason = worker.load(1, "", name="jobs/x/hooks.lua", more=[("jobs/x/tests.lua", big)], limit=1 << 20)

    assert reason == "jobs/x/tests.lua: does not fit into its memory limit of 1048576 bytes"


def test_files_are_executed_in_order_and_once(worker: WorkerDriver) -> None:
    prepare(worker, "print('hooks') echo(1) local x = 1", "print('defer')")
    for run in (1, 2):
        worker.call(run, 1, "load")
        assert worker.end(run).ended == Ended.SUCCESS

    assert worker.lines == ["hooks", "defer"]


def test_a_file_that_raises_names_its_line(worker: WorkerDriver) -> None:
    prepare(worker, "x = 1", "local function deep()\n  error('no luck')\nend\ndeep()")
    worker.call(1, 1, "load")
    end = worker.end(1)

    assert (end.ended, end.reason, end.discarded) == (Ended.ERROR, "jobs/x/defer.lua:2: no luck", False)
    assert "jobs/x/defer.lua:4: in main chunk" in end.traceback


def test_what_a_file_defers_follows_it_without_any_hook(worker: WorkerDriver) -> None:
    prepare(worker, "defer(function() print('deferred') end) function on_success() print('hook') end")
    worker.call(1, 1, "load")
    worker.end(1)

    assert worker.lines == ["deferred"]


def test_a_file_that_never_ends_is_killed_and_no_hook_follows(worker: WorkerDriver) -> None:
    prepare(worker, "function on_error() print('hook') end defer(function() print('deferred') end) while true do end")
    worker.call(1, 1, "load", cpu_ms=50)

    assert (worker.end(1).ended, worker.lines) == (Ended.CPU, ["deferred"])


# Which hooks there are


def test_a_cycle_tells_which_hooks_are_defined_and_what_memory_is_used(worker: WorkerDriver) -> None:
    prepare(worker, "function filter_item() end before_fetch = 5", "function on_finished() end")
    daemon, end = cycle(worker)

    (report,) = daemon.reports
    assert [hook for hook in HOOK_NAMES if is_defined(report.defined, hook)] == ["filter_item", "on_finished"]
    assert (end.ended, report.status) == (Ended.SUCCESS, None)
    assert 20_000 < report.memory < 200_000


def test_each_hook_is_known_by_its_own_bit(worker: WorkerDriver) -> None:
    prepare(worker, " ".join(f"function {hook}() end" for hook in HOOK_NAMES))
    daemon, _ = cycle(worker)

    assert daemon.reports[0].defined == (1 << len(HOOK_NAMES)) - 1


def test_a_hook_may_define_another_and_remove_itself(worker: WorkerDriver) -> None:
    prepare(worker, "function before_fetch() before_fetch = nil function before_store() end end")
    daemon, _ = cycle(worker, ("before_fetch", {}), ("before_fetch", {}))

    assert [report.status for report in daemon.reports] == [None, b"ok", b"absent"]
    assert is_defined(daemon.reports[1].defined, "before_store")


def test_a_vm_whose_files_have_not_run_says_so_and_is_told_to_run_them(worker: WorkerDriver) -> None:
    prepare(worker, "function before_fetch(request) return request end")
    daemon = worker.handlers["_hook"] = Daemon([(LOAD,), ("before_fetch", {"url": "u"})])
    worker.call(1, 1, "cycle", {})

    assert worker.end(1).ended == Ended.SUCCESS
    assert [report.defined for report in daemon.reports] == [UNLOADED, 1, 1]
    assert daemon.values == [None, {b"url": b"u"}]


def test_a_cycle_whose_files_fail_ends_as_failed_and_calls_no_hook(worker: WorkerDriver) -> None:
    prepare(worker, "function on_error() print('hook') end\nerror('no luck')")
    daemon = worker.handlers["_hook"] = Daemon([(LOAD,)])
    worker.call(1, 1, "cycle", {})
    end = worker.end(1)

    assert (end.ended, end.reason) == (Ended.ERROR, "jobs/x/hooks.lua:2: no luck")
    assert "hooks.lua:2: in main chunk" in end.traceback
    assert (daemon.reports[1].status, daemon.reports[1].defined) == (b"error", UNLOADED)
    assert worker.lines == []


# What hooks are given and give back


@pytest.mark.parametrize(
    ("hook", "argument", "body", "value"),
    [
        (
            "before_fetch",
            {"url": "u", "headers": {}},
            "a.headers.x = 'y' return a",
            {b"url": b"u", b"headers": {b"x": b"y"}},
        ),
        ("before_fetch", {}, "return nil", None),
        ("before_fetch", {}, "return false", False),
        ("override_fetch", {"url": "u"}, "return {status = 200, body = a.url}", {b"status": 200, b"body": b"u"}),
        ("after_fetch", {"ok": False}, "return a, 'more'", {b"ok": False}),
        ("override_extract", {"body": "b"}, "return {{fields = {t = a.body}}}", [{b"fields": {b"t": b"b"}}]),
        ("after_extract", ITEMS, "return {a[2]}", [{b"fields": {b"title": b"Cup", b"link": b"/cup"}, b"matches": {}}]),
        ("after_extract", ITEMS, "return 'nonsense'", b"nonsense"),
        ("before_store", [], "return a", {}),
        ("before_notify", ITEMS, "return #a", 2),
        ("on_success", None, "return 1", None),
        ("on_error", "why", "return 1", None),
    ],
)
def test_a_hook_gets_its_argument_and_gives_its_first_result(
    worker: WorkerDriver, hook: str, argument: object, body: str, value: object
) -> None:
    prepare(worker, f"function {hook}(a, ctx) {body} end")
    daemon, end = cycle(worker, (hook, argument))

    assert (end.ended, daemon.reports[1].status, daemon.values) == (Ended.SUCCESS, b"ok", [value])


def test_the_hooks_at_the_end_are_called_as_they_are_written(worker: WorkerDriver) -> None:
    prepare(
        worker,
        "function on_success(ctx, x) print('success', ctx.a, x) end "
        "function on_error(err, ctx) print('error', err, ctx.a) end",
        "function on_finally(ctx, x) print('finally', ctx.a, x) end "
        "function on_finished(...) print(select('#', ...)) end",
    )
    cycle(worker, ("on_success",), ("on_error", "why"), ("on_finally",), ("on_finished",), ctx={"a": 1})

    assert worker.lines == ["success\t1\tnil", "error\twhy\t1", "finally\t1\tnil", "0"]


@pytest.mark.parametrize(
    ("hook", "argument", "path"),
    [
        ("after_fetch", {"ok": True, "response": {"headers": {"content-type": "x"}}}, "a.response.headers"),
        ("override_extract", {"headers": {"content-type": "x"}}, "a.headers"),
        ("before_store", [], "ctx.last_fetch.response.headers"),
    ],
)
def test_reading_response_headers_ignores_case(worker: WorkerDriver, hook: str, argument: object, path: str) -> None:
    later = {"last_fetch": wire.pack([{"ok": True, "response": {"headers": {"content-type": "x"}}}])}
    prepare(worker, f"function {hook}(a, ctx) return {path}['Content-TYPE'] end")
    daemon, _ = cycle(worker, (hook, argument, later))

    assert daemon.values == [b"x"]


# filter_item


def test_an_item_whose_filter_fails_is_marked_and_the_others_are_judged(worker: WorkerDriver) -> None:
    prepare(worker, "function filter_item(item)\n  if item.n > 1 then error('bad') end\n  return item\nend")
    daemon, end = cycle(worker, ("filter_item", [{"n": n} for n in (3, 1, 2, 4)]))

    report = daemon.reports[1]
    assert end.ended == Ended.SUCCESS
    assert (report.status, report.value) == (b"error", [True, {b"n": 1}, True, True])
    assert report.error == b"jobs/x/hooks.lua:2: bad (and 2 more)"
    assert report.traceback is not None
    assert b"hooks.lua:2: in function 'filter_item'" in report.traceback


def test_a_filter_that_returns_true_keeps_the_item(worker: WorkerDriver) -> None:
    prepare(worker, "function filter_item(item) item.seen = 1 return item.n == 2 end")
    daemon, _ = cycle(worker, ("filter_item", [{"n": 1}, {"n": 2}]))

    assert (daemon.reports[1].status, daemon.values) == (b"ok", [[False, {b"n": 2, b"seen": 1}]])


def test_a_filter_that_returns_no_item_is_told_what_was_expected(worker: WorkerDriver) -> None:
    prepare(worker, "\nfunction filter_item(item) return 1 end")
    daemon, _ = cycle(worker, ("filter_item", [{}]))

    told = b"jobs/x/hooks.lua:2: filter_item must return the item, true, false or nil, it returned a number"
    assert daemon.reports[1].error == told


def test_a_hook_whose_value_is_taken_tells_where_it_begins(worker: WorkerDriver) -> None:
    prepare(worker, "\nfunction before_fetch(r) return r end after_extract = echo\nfunction on_success() return 1 end")
    daemon, _ = cycle(worker, ("before_fetch", {}), ("after_extract", []), ("on_success",))

    assert [report.traceback for report in daemon.reports[1:]] == [b"jobs/x/hooks.lua:2", None, None]


# before_webhook

PAYLOAD: dict[str, object] = {"job_name": "Shop", "item_count": 2, "items": ITEMS}


def webhook(worker: WorkerDriver, body: str) -> Report:
    prepare(worker, f"function before_webhook(payload, ctx) {body} end")
    daemon, _ = cycle(worker, ("before_webhook", PAYLOAD))
    return daemon.reports[1]


def test_the_payload_of_a_webhook_is_flat_in_its_json(worker: WorkerDriver) -> None:
    report = webhook(worker, "return payload")

    assert report.value == (
        b'{"item_count":2,"items":[{"keywords":["tea"],"link":"/tea","title":"Tea"},'
        b'{"keywords":[],"link":"/cup","title":"Cup"}],"job_name":"Shop"}'
    )


def test_the_items_of_a_payload_show_their_fields_and_matches(worker: WorkerDriver) -> None:
    report = webhook(
        worker,
        "local lines = {} for _, item in ipairs(payload.items) do "
        "local matches = table.concat(item.matches, ',') "
        "lines[#lines + 1] = item.fields.title .. ':' .. matches .. #item.keywords .. item.link end "
        "return {content = table.concat(lines, ' ')}",
    )

    assert report.value == b'{"content":"Tea:tea1/tea Cup:0/cup"}'


@pytest.mark.parametrize("silent", ["nil", "false"])
def test_a_webhook_may_be_silenced(worker: WorkerDriver, silent: str) -> None:
    report = webhook(worker, f"return {silent}")

    assert (report.status, report.value) == (b"ok", None)


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ("return 'text'", b"jobs/x/hooks.lua:1: before_webhook must return a table or nil, it returned a string"),
        ("payload.f = print return payload", b"json_encode can't write a function at f"),
    ],
)
def test_a_payload_that_is_no_json_object_is_an_error(worker: WorkerDriver, body: str, error: bytes) -> None:
    report = webhook(worker, body)

    assert (report.status, report.value, report.error) == (b"error", None, error)
    told = "stack traceback:\n\tjobs/x/hooks.lua:1: in function 'before_webhook', which begins there"
    assert (report.traceback or b"").decode() == told


# Errors and deferred functions


def test_an_error_is_reported_with_its_line_and_the_cycle_goes_on(worker: WorkerDriver) -> None:
    prepare(
        worker, "function before_fetch(request)\n  request.url:nonsense()\nend function on_success() print('on') end"
    )
    daemon, end = cycle(worker, ("before_fetch", {"url": "u"}), ("on_success",))

    failed = daemon.reports[1]
    assert failed.status == b"error"
    assert failed.value is None
    assert failed.error is not None
    assert failed.error.startswith(b"jobs/x/hooks.lua:2: attempt to call a nil value (method 'nonsense')")
    assert failed.traceback == b"stack traceback:\n\tjobs/x/hooks.lua:2: in function 'before_fetch'"
    assert (daemon.reports[2].status, worker.lines, end.ended) == (b"ok", ["on"], Ended.SUCCESS)


def test_an_error_of_several_lines_is_reported_whole(worker: WorkerDriver) -> None:
    prepare(worker, "function before_fetch() error({message = 'one\\ntwo'}) end")
    daemon, _ = cycle(worker, ("before_fetch", {}))

    assert daemon.reports[1].error == b"one\ntwo"


def test_what_a_hook_defers_runs_last_first_before_the_next_hook(worker: WorkerDriver) -> None:
    prepare(
        worker,
        "function before_fetch(r) defer(function() print('a') end) defer(function() error('b', 0) end) "
        "defer(function() r.seen = true end) print('hook') return r end "
        "function after_fetch() print('next') end",
    )
    daemon, _ = cycle(worker, ("before_fetch", {}), ("after_fetch", {}))

    assert [line.splitlines()[0] for line in worker.lines] == ["hook", "defer: b", "a", "next"]
    assert daemon.values[0] == {b"seen": True}


def test_what_a_failed_hook_deferred_runs_too(worker: WorkerDriver) -> None:
    prepare(worker, "function before_fetch() defer(function() print('deferred') end) error('no') end")
    daemon, _ = cycle(worker, ("before_fetch", {}))

    assert (daemon.reports[1].status, worker.lines) == (b"error", ["deferred"])


def test_memory_is_what_is_used_after_the_hook(worker: WorkerDriver) -> None:
    prepare(worker, "function before_fetch() kept = ('x'):rep(1000000) end")
    daemon, _ = cycle(worker, ("before_fetch", {}))

    assert daemon.reports[1].memory - daemon.reports[0].memory > 999_000


# ctx


def test_ctx_lasts_for_a_cycle_and_not_longer(worker: WorkerDriver) -> None:
    prepare(
        worker,
        "function before_fetch(r, ctx) ctx.mine, ctx.shared.n = (ctx.mine or 0) + 1, (ctx.shared.n or 0) + 1 "
        "return {ctx.mine, ctx.shared.n, ctx.url} end",
    )
    first, _ = cycle(worker, ("before_fetch", {}), ("before_fetch", {}), ctx={"url": "u"})
    second, _ = cycle(worker, ("before_fetch", {}), run=2, ctx={"url": "v"})

    assert (first.values, second.values) == ([[1, 1, b"u"], [2, 2, b"u"]], [[1, 1, b"v"]])


def test_a_workers_number_can_be_read_and_not_written(worker: WorkerDriver) -> None:
    prepare(
        worker,
        "function before_fetch(r, ctx) r.id = ctx.worker_id return r end\n"
        "function after_fetch(r, ctx)\nctx.worker_id = 9 end",
    )
    daemon, _ = cycle(
        worker, ("before_fetch", {}, {"worker_id": wire.pack([5])}), ("after_fetch", {}), ctx={"worker_id": 3}
    )

    assert daemon.values[0] == {b"id": 3}
    assert daemon.reports[2].error == b"jobs/x/hooks.lua:3: ctx.worker_id is read-only"


STAGES = [{"name": "fetch", "duration_ms": 12}, {"name": "extract", "duration_ms": 3}]

# What the files define, what is asked of them with what is added to ctx, and what each hook gives.
GIVEN: dict[str, tuple[str, list[Sequence[object]], list[object]]] = {
    "a_hook_may_call_ops": (
        "function before_fetch(request) request.url = store_get('k') return request end",
        [("before_fetch", {"url": "u"})],
        [{b"url": b"stored"}],
    ),
    "filter_item_is_called_for_each_item": (
        "function filter_item(item, ctx) if item.matches[1] then item.fields.link = nil return item end end",
        [("filter_item", ITEMS)],
        [[{b"fields": {b"title": b"Tea"}, b"matches": [b"tea"]}, False]],
    ),
    "a_filter_may_call_ops_for_each_item": (
        "function filter_item(item) item.k = echo(item.n) return item end",
        [("filter_item", [{"n": 1}, {"n": 2}])],
        [[{b"n": 1, b"k": 1}, {b"n": 2, b"k": 2}]],
    ),
    "each_hook_may_defer_as_much_as_a_run": (
        "function before_fetch() for _ = 1, 1000 do defer(function() end) end return 1 end",
        [("before_fetch", {}), ("before_fetch", {})],
        [1, 1],
    ),
    "what_the_daemon_adds_is_there_for_the_next_hook_and_stays": (
        "function before_store(items, ctx) return ctx.selector_matches end before_notify = before_store",
        [("before_store", [], {"selector_matches": wire.pack([7])}), ("before_notify", [])],
        [7, 7],
    ),
    "what_is_packed_is_read_when_it_is_looked_for": (
        "function before_store(items, ctx) local t = ctx.telemetry "
        "return {t.job_name, t.map.fetch == t.stages[1], t.map.extract.duration_ms, ctx.telemetry == t} end",
        [("before_store", [], {"telemetry": wire.pack([{"job_name": "x", "stages": STAGES}])})],
        [[b"x", True, 3, True]],
    ),
    "a_newer_packed_value_takes_the_place_of_the_one_that_was_read": (
        "function before_store(items, ctx) return ctx.last_fetch.n end",
        [("before_store", [], {"last_fetch": wire.pack([{"n": n}])}) for n in (1, 2)],
        [1, 2],
    ),
    "an_argument_may_be_put_into_ctx_as_it_is": (
        "function after_fetch(result, ctx) return result == ctx.last_fetch end",
        [("after_fetch", {"ok": True}, {"last_fetch": b""})],
        [True],
    ),
    "a_script_may_put_its_own_in_the_place_of_what_is_packed": (
        "function before_store(items, ctx) ctx.last_fetch = 1 return ctx.last_fetch end",
        [("before_store", [], {"last_fetch": wire.pack([2])})],
        [1],
    ),
    "pairs_shows_all_of_ctx": (
        "function before_store(items, ctx) local names = {} for name in pairs(ctx) do names[#names + 1] = name end "
        "table.sort(names) return table.concat(names, ' ') end",
        [("before_store", [], {"a": wire.pack([1]), "b": wire.pack([2])})],
        [b"a b shared worker_id"],
    ),
}


@pytest.mark.parametrize(("hooks", "answers", "values"), GIVEN.values(), ids=GIVEN)
def test_what_hooks_give(
    worker: WorkerDriver, hooks: str, answers: list[Sequence[object]], values: list[object]
) -> None:
    prepare(worker, hooks)
    daemon, _ = cycle(worker, *answers)

    assert daemon.values == values


# Scripts that break their own globals

POISON = (
    "string.format, table.concat, rawset, json_encode, dump, type, next, pairs, setmetatable = nil\n"
    "local meta = {__index = function() error('poison') end, __newindex = function() error('poison') end}\n"
)


def test_a_script_that_breaks_the_library_breaks_no_cycle(worker: WorkerDriver) -> None:
    prepare(
        worker,
        "local set = setmetatable " + POISON + "function filter_item(item) return item end "
        "function before_webhook(payload) return payload end function before_store(items, ctx) return ctx.nothing end "
        "set(_G, meta) set(string, meta)",
    )
    answers: list[Sequence[object]] = [("filter_item", ITEMS), ("before_webhook", PAYLOAD), ("before_store", ITEMS)]
    daemon, end = cycle(worker, *answers)

    assert (end.ended, [report.status for report in daemon.reports]) == (Ended.SUCCESS, [None, b"ok", b"ok", b"ok"])


def test_what_a_hook_returns_may_refuse_to_be_read(worker: WorkerDriver) -> None:
    prepare(
        worker,
        "local meta = {__index = error, __pairs = error, __len = error, __gc = nil, __close = error}\n"
        "function filter_item(item) return setmetatable({a = 1}, meta) end before_webhook = filter_item",
    )
    daemon, end = cycle(worker, ("filter_item", ITEMS), ("before_webhook", PAYLOAD))

    assert (end.ended, daemon.values) == (Ended.SUCCESS, [[{b"a": 1}, {b"a": 1}], b'{"a":1}'])


# Cycles that don't end well

AT_THE_END = (
    "function on_success() print('success') end function on_error(err, ctx) print('error', err, ctx.mine) end "
    "function on_finally(ctx) print('finally', ctx.mine) end "
)


def test_a_cycle_that_ends_well_calls_no_hook_by_itself(worker: WorkerDriver) -> None:
    prepare(worker, AT_THE_END)
    _, end = cycle(worker)

    assert (end.ended, worker.lines) == (Ended.SUCCESS, [])


def test_a_killed_hook_ends_the_cycle_and_the_last_hooks_follow_with_its_ctx(worker: WorkerDriver) -> None:
    prepare(worker, AT_THE_END + "\nfunction before_fetch(r, ctx) ctx.mine = 1 while true do end end")
    begin(worker, ("before_fetch", {}), cpu_ms=50)
    end = worker.end(1)

    assert (end.ended, end.reason, end.discarded) == (Ended.CPU, "jobs/x/hooks.lua:2: cpu limit exceeded", True)
    assert worker.lines == ["error\tjobs/x/hooks.lua:2: cpu limit exceeded\t1", "finally\t1"]


def test_a_hook_that_needs_too_much_memory_ends_the_cycle(worker: WorkerDriver) -> None:
    prepare(
        worker,
        AT_THE_END + "function before_fetch() local t = {} while true do t[#t + 1] = ('x'):rep(1 << 20) .. #t end end",
    )
    _, end = cycle(worker, ("before_fetch", {}))

    assert (end.ended, end.discarded) == (Ended.MEMORY, True)
    assert worker.lines == ["error\tnot enough memory\tnil", "finally\tnil"]


def test_a_cycle_can_be_cancelled_between_two_hooks(worker: WorkerDriver) -> None:
    prepare(worker, AT_THE_END)
    worker.call(99, 1, "load")
    worker.end(99)
    worker.call(1, 1, "cycle", {}, until="_hook")
    worker.cancel(1, Why.TIMEOUT)

    assert worker.end(1).ended == Ended.TIMEOUT
    assert worker.lines == ["error\ttimed out\tnil", "finally\tnil"]


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (["on_error"], ["error\twhy\tnil", "finally\tnil"]),
        (["on_success"], ["success", "error\tcpu limit\tnil", "finally\tnil"]),
        (["on_error", "on_finally"], ["error\twhy\tnil", "finally\tnil"]),
        (["on_finished"], []),
    ],
)
def test_no_last_hook_is_called_twice_when_one_of_them_is_killed(
    worker: WorkerDriver, asked: list[str], expected: list[str]
) -> None:
    prepare(
        worker,
        AT_THE_END + "function on_finished() while true do end end function before_fetch() while true do end end",
    )
    begin(worker, *((hook, "why") for hook in asked), ("before_fetch", {}), cpu_ms=50)
    worker.end(1)

    assert [line.replace("jobs/x/hooks.lua:1: cpu limit exceeded", "cpu limit") for line in worker.lines] == expected


def test_a_daemon_that_refuses_ends_the_cycle_as_failed(worker: WorkerDriver) -> None:
    def refuse(_: object) -> Sequence[object]:
        raise ValueError("no such cycle")

    prepare(worker, AT_THE_END)
    worker.call(99, 1, "load")
    worker.end(99)
    worker.handlers["_hook"] = refuse
    worker.call(1, 1, "cycle", {})
    end = worker.end(1)

    assert (end.ended, end.reason, end.discarded) == (Ended.ERROR, "no such cycle", False)
    assert worker.lines == ["error\tno such cycle\tnil", "finally\tnil"]


def test_cycles_of_one_vm_interleave_between_hooks(worker: WorkerDriver) -> None:
    prepare(worker, "function before_fetch(r, ctx) count = (count or 0) + 1 return {ctx.worker_id, count} end")
    worker.call(99, 1, "load")
    worker.end(99)
    for run in (1, 2):
        worker.call(run, 1, "cycle", {"worker_id": run}, until="_hook")
    worker.asked.clear()
    for run in (2, 1):
        worker.answer(run, ["before_fetch", {}])
        worker.wait_until_asked("_hook", run)
    for run in (1, 2):
        worker.answer(run, [])

    assert [(run, arguments[3]) for run, _, arguments in worker.asked] == [(2, [2, 1]), (1, [1, 2])]
    assert [worker.end(run).ended for run in (1, 2)] == [Ended.SUCCESS] * 2


def test_what_the_daemon_refuses_to_be_told_is_the_hook_s_own_error(worker: WorkerDriver) -> None:
    prepare(worker, "function after_extract(items) return {1, 2, 3} end function on_finally() end")
    daemon = begin(worker, ("after_extract", ITEMS), ("on_finally",))

    def refuse(arguments: Sequence[Any]) -> Sequence[object]:
        if arguments[3:] and isinstance(arguments[3], list):
            raise ValueError("what it returned is too much")
        return daemon(arguments)

    worker.handlers["_hook"] = refuse
    end = worker.end(1)

    assert [(report.status, report.value, report.error) for report in daemon.reports[1:]] == [
        (b"error", None, b"what it returned is too much"),
        (b"ok", None, None),
    ]
    assert end.ended == Ended.SUCCESS


def test_a_hook_may_have_several_calls_under_way(worker: WorkerDriver) -> None:
    prepare(
        worker,
        "function before_fetch(request) request.urls = parallel_map({'a', 'b'}, echo) return request end\n"
        "function after_fetch() parallel(function() error('no', 0) end) end",
    )

    daemon, end = cycle(worker, ("before_fetch", {}, None), ("after_fetch", {}, None))

    assert end.ended == Ended.SUCCESS
    assert daemon.reports[1].value == {b"urls": [b"a", b"b"]}
    assert daemon.reports[2].error == b"no (function 1 of parallel)"
