"""What makes an item the same as an earlier one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from spyweb.jobs.monitor.stages.keep import hash_of
from spyweb.model import Outcome
from tests.fakes.monitor import make_monitor, shop

LAMP = {"title": "Lamp", "price": "5"}


def test_all_fields_count_in_any_order() -> None:
    assert hash_of(LAMP, ()) == hash_of({"price": "5", "title": "Lamp"}, ())
    assert hash_of(LAMP, ()) != hash_of({**LAMP, "price": "6"}, ())


def test_only_the_hash_fields_count_where_there_are_some() -> None:
    assert hash_of(LAMP, ("title",)) == hash_of({**LAMP, "price": "6"}, ("title",))
    assert hash_of(LAMP, ("title",)) != hash_of({**LAMP, "title": "Desk"}, ("title",))


def test_all_fields_count_where_the_hash_fields_are_empty() -> None:
    bare = {"title": "", "price": "5"}
    assert hash_of(bare, ("title",)) == hash_of(bare, ())
    assert hash_of(bare, ("title",)) != hash_of({**bare, "price": "6"}, ("title",))


def test_a_hash_is_the_same_in_every_version_for_it_is_stored() -> None:
    assert hash_of(LAMP, ()).hex() == "f6d461c1533e8fa55de6f3b504b726bf"


@given(st.dictionaries(st.text(), st.text(min_size=1)), st.dictionaries(st.text(), st.text(min_size=1)))
def test_two_items_are_the_same_when_their_fields_are(one: dict[str, str], other: dict[str, str]) -> None:
    assert (hash_of(one, ()) == hash_of(other, ())) is (one == other)


async def test_a_store_that_refuses_fails_the_cycle() -> None:
    async with shop() as s:
        await s.store.close()
        ending = await s.run(make_monitor())
        assert ending.outcome is Outcome.FAILED
        assert ending.reason.startswith("not stored: ")
