"""Requests and responses between Python and Lua."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from spyweb.model import Monitor, Proxies, Rotation
from spyweb.monitor.exchange import (
    EXPECTED,
    FetchResult,
    ProxyRotation,
    failed,
    first_request,
    read_own_fetch,
    read_request,
    read_result,
    replied,
    request_to_lua,
    result_to_lua,
    warning_about,
)
from spyweb.ops.arguments import Mismatch
from spyweb.ops.network.request import FetchRequest, Response, fetch_of
from spyweb.settings.sections import HttpSettings

REQUEST = FetchRequest(url=b"http://shop.example/", headers={b"Accept": b"text/html"})
RESPONSE = Response(status=200, body=b"<p>", url=b"http://shop.example/", headers={b"server": b"x"}, time_ms=5)


def test_what_is_not_set_is_not_there() -> None:
    assert request_to_lua(REQUEST) == {"url": REQUEST.url, "method": b"GET", "headers": REQUEST.headers}


def test_the_settings_headers_are_there_for_before_fetch_to_see() -> None:
    settings = HttpSettings(headers=(("Accept", "*/*"), ("X-Team", "red")))
    request = first_request(
        Monitor(urls=("http://shop.example/",), selector="li", fields=(), headers=(("accept", "text/html"),)),
        "http://shop.example/",
        settings,
    )
    assert request_to_lua(request)["headers"] == {b"X-Team": b"red", b"accept": b"text/html"}
    assert fetch_of(read_request({b"headers": {}}, request), settings, None).headers == {}


def test_what_can_not_be_nil_stays_and_the_rest_is_as_it_was_given() -> None:
    given = {b"body": b"x", b"timeout": b"2.5", b"max_body_size": 3}
    assert read_request(given, REQUEST) == FetchRequest(
        url=REQUEST.url, headers=REQUEST.headers, body=b"x", timeout_s=2.5, max_body_size=3
    )


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (b"x", "table expected, got string"),
        ({b"url": {}}, "field 'url': string expected, got table"),
        ({b"timeout": 0}, "field 'timeout': a positive number expected"),
        ({b"timeout": float("inf")}, "field 'timeout': a positive number expected"),
        ({b"max_body_size": b"big"}, "field 'max_body_size': number expected, got string"),
        ({b"headers": {b"A": True}}, "header 'A': string expected, got boolean"),
    ],
)
def test_a_request_that_makes_no_sense_is_named(given: object, reason: str) -> None:
    with pytest.raises(Mismatch) as caught:
        read_request(given, REQUEST)
    assert str(caught.value) == reason


@pytest.mark.parametrize(("status", "ok"), [(199, False), (200, True), (299, True), (304, False), (500, False)])
def test_a_response_is_ok_from_200_to_299(status: int, ok: bool) -> None:
    fetched = replied(REQUEST, Response(status=status, body=b"", url=b""))
    assert fetched.ok is ok
    assert fetched.error in (None, f"http status: {status}")


def test_a_failure_is_told_without_a_response() -> None:
    assert result_to_lua(failed(REQUEST, "gone", "dns")) == {
        "ok": False,
        "request": request_to_lua(REQUEST),
        "error": {"message": "gone", "kind": "dns"},
    }


def test_a_hooks_own_response_may_leave_out_all_but_the_body() -> None:
    fetched = read_own_fetch({b"body": b"x", b"headers": {b"Content-Type": b"a/b"}}, REQUEST)
    assert fetched.response == Response(status=200, body=b"x", url=REQUEST.url, headers={b"content-type": b"a/b"})


def test_a_hooks_own_response_is_judged_by_its_status() -> None:
    assert not read_own_fetch({b"status": 500, b"body": b"x"}, REQUEST).ok
    with pytest.raises(Mismatch, match="field 'status': number expected"):
        read_own_fetch({b"status": b"fine"}, REQUEST)


@pytest.mark.parametrize("error", [True, {b"nothing": 1}, [b"x"]])
def test_an_error_that_says_nothing_is_an_error_all_the_same(error: object) -> None:
    fetched = read_own_fetch({b"error": error}, REQUEST)
    assert fetched.response is None
    assert fetched.error == "it failed"


NEW = {b"body": b"new", b"status": 201, b"url": b"http://cache.example/"}
CACHED = Response(status=201, body=b"new", url=b"http://cache.example/")
FETCHED, REFUSED = replied(REQUEST, RESPONSE), replied(REQUEST, replace(RESPONSE, status=403))
FAILED = failed(REQUEST, "gone", "dns")


@pytest.mark.parametrize(
    ("before", "given", "response"),
    [
        (FETCHED, {b"response": NEW}, replace(RESPONSE, body=b"new")),  # of a success only the body is taken back
        (FETCHED, {b"body": b"new", b"status": 500}, replace(RESPONSE, body=b"new")),
        (FAILED, {b"response": NEW}, CACHED),  # for a failure a whole response
        (FAILED, {b"body": b"new", b"status": 201}, replace(CACHED, url=REQUEST.url)),
        (REFUSED, {b"status": 200}, RESPONSE),
    ],
)
def test_what_after_fetch_gives_back_is_understood_with_and_without_its_wrapping(
    before: FetchResult, given: object, response: Response
) -> None:
    assert read_result(given, before).response == response


@pytest.mark.parametrize("given", [{}, {b"ok": True}, {b"response": None}])
def test_without_a_response_it_is_left_as_it_is(given: object) -> None:
    assert read_result(given, FAILED) is FAILED


@pytest.mark.parametrize("hook", EXPECTED)
def test_every_name_that_means_something_is_understood(hook: str) -> None:
    _, known = EXPECTED[hook]
    for name in known:
        assert warning_about(hook, {name.encode(): b"x"}) == ""


@pytest.mark.parametrize(
    ("hook", "value", "told"),
    [
        ("before_fetch", {b"url": b"x", b"Headers": {}}, "unknown name 'Headers' in what it returned: did you mean"),
        ("after_fetch", {b"respones": {}}, "unknown name 'respones' in what it returned: did you mean 'response'?"),
        (
            "after_fetch",
            {b"ok": True, b"response": {b"html": b""}},
            "nothing in its 'response' belongs to a response: expected",
        ),
        ("after_fetch", {b"response": {b"boddy": b""}}, "unknown name 'boddy' in its 'response': did you mean 'body'?"),
        ("before_fetch", {}, "nothing in what it returned belongs to a request: expected some of url, method,"),
        ("before_fetch", {1: b"x"}, "nothing in what it returned belongs to a request"),
        (
            "override_fetch",
            {b"html": b"x"},
            "nothing in what it returned belongs to a response: expected some of status, body,",
        ),
    ],
)
def test_a_table_in_which_nothing_or_a_misspelt_name_stands_is_told(hook: str, value: object, told: str) -> None:
    assert warning_about(hook, value).startswith(told)


def test_the_names_that_a_script_keeps_for_itself_are_no_mistake() -> None:
    assert warning_about("before_fetch", {b"url": b"x", b"mine": 1, b"page": 2}) == ""


@pytest.mark.parametrize(("hook", "value"), [("after_extract", {b"a": 1}), ("before_fetch", b"text"), ("on_error", {})])
def test_other_hooks_and_other_values_are_judged_elsewhere(hook: str, value: object) -> None:
    assert warning_about(hook, value) == ""


def test_a_very_long_name_is_not_compared() -> None:
    assert warning_about("before_fetch", {b"url": b"x", b"headers" * 100_000: 1}) == ""


@pytest.mark.parametrize(
    ("rotation", "workers", "taken"),
    [
        (Rotation.ROUND_ROBIN, (1, 1, 2, 1), "abca"),
        (Rotation.STICKY, (1, 2, 1, 4), "abaa"),
        (Rotation.RANDOM, (1, 1, 1), "abc"),
    ],
)
def test_proxies_are_taken_in_turn_by_worker_or_at_random(
    rotation: Rotation, workers: Sequence[int], taken: str
) -> None:
    random = iter((0.0, 0.5, 0.999))
    proxies = ProxyRotation(Proxies(urls=("a", "b", "c"), rotation=rotation), lambda: next(random))
    assert [proxies.next_for(worker) for worker in workers] == list(taken)
    assert ProxyRotation(None, lambda: 0.0).next_for(1) is None
