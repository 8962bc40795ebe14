from __future__ import annotations

from spyweb.ops.rules.draft import EditedValue
from spyweb.ops.rules.paths import Object


def test_a_holder_is_copied_before_its_first_change_and_not_again() -> None:
    draft = EditedValue()
    read: Object = {b"a": [1]}

    own = draft.own(read)
    own[b"b"] = 2

    assert draft.own(own) is own
    assert read == {b"a": [1]}
    assert draft.own(read) == {b"a": [1]}


def test_a_text_grows_without_being_copied_and_is_a_text_in_the_end() -> None:
    draft = EditedValue()
    read: Object = {b"t": b"one", b"n": 1}
    own = draft.own(read)
    grown = draft.extended(b"one", b", two")
    assert draft.extended(grown, b", three") is grown
    own[b"t"] = grown

    assert draft.finished(own) == {b"t": b"one, two, three", b"n": 1}
    assert type(own[b"t"]) is bytes
    assert draft.finished(grown) == b"one, two, three"
