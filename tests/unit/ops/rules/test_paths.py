from __future__ import annotations

import pytest

from spyweb.model import Value, ValueKey
from spyweb.ops.rules.paths import LONGEST_SEGMENT, MOST_SEGMENTS, Rejected, check_path, field_of, object_in, spelled


@pytest.mark.parametrize("path", [(), (b"a",), (b"a.b",), (b"x" * LONGEST_SEGMENT,), (b"a",) * MOST_SEGMENTS])
def test_paths_within_the_limits_are_fine(path: tuple[bytes, ...]) -> None:
    check_path("set", path)


@pytest.mark.parametrize(
    ("path", "code", "message"),
    [
        ((b"a",) * 33, "set.path.too_deep", "a path of 33 segments; at most 32"),
        ((b"x" * 257,), "set.path.segment_too_long", "a segment of 257 bytes; at most 256"),
        ((b"",), "set.path.empty_segment", "a segment of the path is empty"),
        ((b"a", b"__proto__"), "set.path.proto_polluted", "a path can't go through '__proto__'"),
    ],
)
def test_a_path_beyond_them_is_rejected_with_its_code(path: tuple[bytes, ...], code: str, message: str) -> None:
    with pytest.raises(Rejected) as caught:
        check_path("set", path)
    assert (caught.value.code, str(caught.value)) == (code, message)


@pytest.mark.parametrize(("segment", "found"), [(b"7", 1), (b"a", 2), (b"07", None), (b"-1", None), (b"", None)])
def test_a_field_is_found_by_its_text(segment: bytes, found: Value) -> None:
    target: dict[ValueKey, Value] = {7: 1, b"a": 2, -1: 3}
    assert field_of(target, segment) == found


def test_anything_but_an_object_is_an_empty_object_on_the_way() -> None:
    assert object_in({b"a": {b"b": 1}}, b"a") == {b"b": 1}
    assert object_in({b"a": [1]}, b"a") == object_in({}, b"a") == {}


def test_a_path_is_spelled_for_people() -> None:
    assert spelled(()) == "the value"
    assert spelled([b"a", b"\xff"]) == r"'a.\xff'"
