"""Whatever a hook returns makes sense, or is a Mismatch: nothing that a script can think of is a bug in spyweb."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spyweb.cooperative import run_at_once
from spyweb.errors import FetchError
from spyweb.lua import wire
from spyweb.lua.channel import pack
from spyweb.lua.wire import Ext, Foreign
from spyweb.model import NULL, Field, Monitor
from spyweb.monitor.exchange import failed, read_own_fetch, read_request, read_result, replied, result_to_lua
from spyweb.monitor.items import Item, ItemReader, Keywords, items_to_lua, sequence
from spyweb.monitor.texts import webhook_payload
from spyweb.ops.arguments import Mismatch
from spyweb.ops.network.request import FetchRequest, Response, fetch_of
from spyweb.settings.sections import HttpSettings

NAMES = (
    b"url method headers body timeout proxy max_body_size response status error message kind fields matches"
).split()
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 63) - 1)
    | st.floats()
    | st.binary(max_size=8)
    | st.sampled_from([NULL, Foreign(Ext.FOREIGN, "function")])
)
KEYS = st.sampled_from(NAMES) | st.integers(-2, 5) | st.binary(max_size=3) | st.booleans() | st.floats(allow_nan=False)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=5), max_leaves=12
)
REQUEST = FetchRequest(url=b"http://shop.example/")
RESPONSE = Response(status=200, body=b"<p>", url=REQUEST.url)
MONITOR = Monitor(urls=("http://shop.example/",), selector="li", fields=(Field(name="title", selector=""),))
ITEM = Item({"title": "Lamp"}, ("lamp",))
READER = ItemReader(("title",), Keywords(("lamp",), ()))
READERS: dict[str, Callable[[object], object]] = {
    "before_fetch": partial(read_request, before=REQUEST),
    "override_fetch": partial(read_own_fetch, request=REQUEST),
    "after_fetch of a success": partial(read_result, fetched=replied(REQUEST, RESPONSE)),
    "after_fetch of a failure": partial(read_result, fetched=failed(REQUEST, "gone", "dns")),
    "items": lambda value: run_at_once(READER.read_all(value, [ITEM, ITEM])),
    "filter_item": sequence,
}


@pytest.mark.parametrize("name", READERS)
@given(value=VALUES)
def test_a_returned_value_is_read_or_is_a_mismatch(name: str, value: object) -> None:
    with contextlib.suppress(Mismatch):
        READERS[name](value)


@given(VALUES)
def test_a_request_that_was_read_goes_out_or_is_a_fetch_error(value: object) -> None:
    with contextlib.suppress(Mismatch, FetchError):
        fetch_of(read_request(value, REQUEST), HttpSettings(), None)


@given(VALUES)
def test_what_was_read_can_be_told_to_the_next_hook_and_to_a_webhook(value: object) -> None:
    with contextlib.suppress(Mismatch):
        items = run_at_once(READER.read_all(value))
        assert run_at_once(READER.read_all(wire.unpack(pack(items_to_lua(items))))) == items
        webhook_payload("Shop", "http://shop.example/", MONITOR, items)
    with contextlib.suppress(Mismatch):
        pack([result_to_lua(read_own_fetch(value, REQUEST))])
