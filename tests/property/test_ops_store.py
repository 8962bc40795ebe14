"""The store ops of two jobs against a dictionary."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from spyweb.model import JobId
from spyweb.ops.dispatcher import OpDispatcher
from tests.fakes.ops import BACKUP, PRICES, make_call, make_world

JOBS = st.sampled_from([PRICES, BACKUP])
KEYS = st.one_of(st.sampled_from([b"", b"k", b"prices:k", b"\x00", b"\xff"]), st.binary(max_size=4))
STEPS = st.one_of(
    st.tuples(JOBS, st.sampled_from(["store_set", "global_store_set"]), KEYS, st.binary(max_size=20)),
    st.tuples(JOBS, st.sampled_from(["store_get", "store_delete", "global_store_get", "global_store_delete"]), KEYS),
)


@given(st.lists(STEPS, max_size=30))
def test_stored_texts_behave_like_a_dictionary_for_each_job_and_one_for_all(
    steps: list[tuple[JobId, str, bytes, bytes] | tuple[JobId, str, bytes]],
) -> None:
    asyncio.run(follow(steps))


async def follow(steps: list[tuple[JobId, str, bytes, bytes] | tuple[JobId, str, bytes]]) -> None:
    world = make_world()
    model: dict[tuple[str, bytes], bytes] = {}
    for job, name, key, *value in steps:
        place = ("" if name.startswith("global") else job, key)
        expected: list[object] = []
        if name.endswith("set"):
            model[place] = value[0]
        elif name.endswith("delete"):
            model.pop(place, None)
        else:
            expected = [model.get(place)]
        host = OpDispatcher(make_call(world, job))
        assert list(await host.op(name, [key, *value])) == expected
