"""What a Lua endpoint answers: in a real worker, with the test in the daemon's place."""

from __future__ import annotations

from typing import Any

import pytest

from spyweb.lua import wire
from spyweb.lua.wire import Ended
from tests.fakes.worker_driver import End, WorkerDriver


@pytest.fixture
def worker(worker: WorkerDriver) -> WorkerDriver:
    worker.handlers["_respond"] = lambda _: []
    return worker


def ask(worker: WorkerDriver, init: str, method: str = "GET", route: str = "x", **fields: object) -> End:
    """What came of a request to /api/v/x."""
    assert worker.load(1, init, name="server/init.lua") is None
    request = {"method": method, "route": route, "is_public": False, "headers": {}, "path_args": []}
    worker.call(1, 1, "request", request | fields)
    return worker.end(1)


def answered(worker: WorkerDriver, end: End) -> list[Any]:
    """Status, headers and body of the only response: sent by its op, or the result of the run."""
    sent = [arguments for _, name, arguments in worker.asked if name == "_respond"]
    if not sent:
        assert end.result
        (status, body), *_ = end.result
        return [status, None, body]
    (response,) = sent
    return [*response, None, None, None][:3]


def answer(worker: WorkerDriver, handler: str, **fields: Any) -> list[Any]:
    end = ask(worker, f"function get:x() {handler} end", **fields)
    assert end.ended == Ended.SUCCESS, end
    return answered(worker, end)


# Which handler


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("GET", b"get"), ("HEAD", b"get"), ("POST", b"post"), ("PUT", b"put"), ("PATCH", b"patch"),
        ("DELETE", b"delete"), ("OPTIONS", b"all"),
    ],
)  # fmt: skip
def test_a_request_goes_to_the_table_of_its_method_first(worker: WorkerDriver, method: str, expected: bytes) -> None:
    tables = ("get", "post", "put", "patch", "delete", "all")
    end = ask(worker, " ".join(f"function {table}:x() return '{table}' end" for table in tables), method)

    assert (end.ended, answered(worker, end)) == (Ended.SUCCESS, [200, None, expected])


def test_public_handlers_are_apart(worker: WorkerDriver) -> None:
    init = "function get:x() return 'private' end function public.all:x() return 'public' end"
    end = ask(worker, init, is_public=True)

    assert answered(worker, end) == [200, None, b"public"]


@pytest.mark.parametrize(
    "init", ["", "get.x = 5", "get = nil", "public.get.x = function() end", "function get:y() end"]
)
def test_a_request_that_nobody_handles_is_not_found(worker: WorkerDriver, init: str) -> None:
    end = ask(worker, init)
    assert end.ended == Ended.SUCCESS
    assert answered(worker, end) == [404, None, b"Not Found"]


def test_a_handler_sees_the_request_as_self(worker: WorkerDriver) -> None:
    response = answer(
        worker,
        "local keys = {} for key in pairs(self) do keys[#keys + 1] = key end table.sort(keys) "
        "local values = {self.method, self.path_args[1], self.query.q, self.headers['X-Key'], self.body, #keys} "
        "return table.concat(values, ' ')",
        path_args=["7"],
        query={"q": "tea"},
        headers={"x-key": "k"},
        body=b"\xff\0",
    )

    assert response == [200, None, b"GET 7 tea k \xff\0 5"]


# What it may return


@pytest.mark.parametrize(
    ("returned", "response"),
    [
        ("'text'", [200, None, b"text"]),
        ("'\\255\\0'", [200, None, b"\xff\0"]),
        ("nil", [200, None, b""]),
        ("{}", [200, None, b""]),
        ("{status = 201}", [201, None, b""]),
        ("{status = 1e9}", [599, None, b""]),
        ("{status = -5}", [100, None, b""]),
        ("{status = 204.9}", [204, None, b""]),
        ("{status = '404', body = 'gone'}", [404, None, b"gone"]),
        ("{body = 3.0}", [200, None, b"3"]),
        ("{body = true}", [200, None, b"true"]),
        ("{body = {a = {1, 2}}}", [200, {b"Content-Type": b"application/json"}, b'{"a":[1,2]}']),
        ("{body = JSON_EMPTY_ARRAY}", [200, {b"Content-Type": b"application/json"}, b"[]"]),
        ("{body = {}, headers = {['content-type'] = 'a/b'}}", [200, {b"content-type": b"a/b"}, b"{}"]),
        ("{body = 'x', headers = {X = 1.0, Y = false}}", [200, {b"X": b"1", b"Y": b"false"}, b"x"]),
    ],
)
def test_what_a_handler_returns_becomes_a_response(worker: WorkerDriver, returned: str, response: list[object]) -> None:
    assert answer(worker, f"return {returned}") == response


@pytest.mark.parametrize(
    ("returned", "reason"),
    [
        ("5", "a handler must return text, a table with status, body and headers, or nothing; it returned a number"),
        (
            "false",
            "a handler must return text, a table with status, body and headers, or nothing; it returned a boolean",
        ),
        ("{status = 'fine'}", "status must be a number, got fine"),
        ("{status = 0/0}", "status must be a number, got -nan"),
        ("{headers = 'x'}", "headers must be a table, got string"),
        ("{headers = {x = {}}}", "the header x must be text, got table"),
        ("{body = print}", "body must be text, a number, a boolean or a table, got function"),
        ("{body = {print}}", "json_encode can't write a function at [1]"),
    ],
)
def test_any_other_return_is_a_failure_that_says_why(worker: WorkerDriver, returned: str, reason: str) -> None:
    end = ask(worker, f"function get:x() return {returned} end")

    assert (end.ended, end.reason.replace("-nan", "nan")) == (Ended.ERROR, reason.replace("-nan", "nan"))
    assert worker.asked == []


# What fails


def test_a_handler_that_raises_fails_with_its_line(worker: WorkerDriver) -> None:
    end = ask(worker, "function get:x()\n  error('no luck')\nend")

    assert (end.ended, end.reason) == (Ended.ERROR, "server/init.lua:2: no luck")
    assert "server/init.lua:2: in" in end.traceback


def test_a_file_that_raises_fails_the_request(worker: WorkerDriver) -> None:
    assert ask(worker, "error('no luck')").reason == "server/init.lua:1: no luck"


def test_a_handler_that_never_ends_is_killed(worker: WorkerDriver) -> None:
    worker.load(1, "function get:x() while true do end end function on_error() print('hook') end")
    worker.call(1, 1, "request", {"method": "GET", "route": "x"}, cpu_ms=50)

    assert (worker.end(1).ended, worker.asked, worker.lines) == (Ended.CPU, [], [])


# What is deferred


def test_what_is_deferred_follows_the_response_and_may_call_ops(worker: WorkerDriver) -> None:
    end = ask(
        worker,
        "function get:x() echo('handler') defer(function() echo('first', self.path) end) "
        "defer(function() error('no luck') end) defer(function() echo('last') end) return 'done' end",
        path="/api/v/x",
    )

    assert end.ended == Ended.SUCCESS
    assert [(name, arguments[0]) for _, name, arguments in worker.asked] == [
        ("echo", b"handler"), ("_respond", 200), ("echo", b"last"), ("echo", b"first")
    ]  # fmt: skip
    assert worker.lines[0].startswith("defer: server/init.lua:1: no luck")


def test_a_failed_handler_says_so_before_what_it_deferred(worker: WorkerDriver) -> None:
    end = ask(worker, "function get:x() defer(function() echo('deferred') end) error('no luck') end")

    assert (end.ended, end.reason) == (Ended.ERROR, "server/init.lua:1: no luck")
    assert [(name, arguments) for _, name, arguments in worker.asked] == [("_respond", []), ("echo", [b"deferred"])]


def test_hooks_of_jobs_mean_nothing_to_a_server(worker: WorkerDriver) -> None:
    hooks = (
        "function on_success() print('s') end function on_error() print('e') end function on_finally() print('f') end "
    )
    ask(worker, hooks + "function get:x() end")
    worker.load(2, hooks + "function get:x() defer(print) error('no') end")
    worker.call(2, 2, "request", {"method": "GET", "route": "x"})
    worker.end(2)

    assert worker.lines == [""]


def test_a_request_that_is_refused_by_the_daemon_fails(worker: WorkerDriver) -> None:
    def refuse(_: object) -> list[object]:
        raise ValueError("the client has gone")

    worker.handlers["_respond"] = refuse

    assert ask(worker, "function get:x() return {headers = {a = 1}} end").reason == "the client has gone"


def test_a_large_answer_and_one_with_headers_leave_by_their_op(worker: WorkerDriver) -> None:
    end = ask(worker, "function get:x() return ('x'):rep(100000) end")

    assert end.result is None
    assert answered(worker, end) == [200, None, b"x" * 100_000]


def test_a_large_request_that_overtakes_the_file_it_is_for_waits_for_that(worker: WorkerDriver) -> None:
    request = {
        "method": "POST",
        "route": "x",
        "is_public": False,
        "headers": {},
        "path_args": [],
        "body": b"x" * 100_000,
    }
    worker.say(wire.BeginRun(1, 11, "request", wire.pack([request]), 10_000, 10))
    worker.expect_silence(wire.RunEnd, 0.2)

    source = b"function post:x() return tostring(#self.body) end"
    worker.say(wire.KeepTemplate(10, [("server/init.lua", source)], 64 << 20, 0))

    end = worker.end(1)
    assert end.ended == Ended.SUCCESS, end
    assert answered(worker, end) == [200, None, b"100000"]


def test_a_handler_and_what_it_defers_may_have_several_calls_under_way(worker: WorkerDriver) -> None:
    assert answer(
        worker,
        "defer(function() log(table.concat({parallel(function() return echo('c') end)})) end) "
        "return table.concat({parallel(function() return echo('a') end, function() return echo('b') end)})",
    ) == [200, None, b"ab"]
    assert worker.lines == ["c"]
