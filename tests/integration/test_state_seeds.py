"""What the documents that started the project say of state where they have no sample, or more than one run is needed.

Their samples run on a real daemon: tests/acceptance/test_seed_scripts.py.  iii's document has lost its own: its
functions are called one after another.
"""

from __future__ import annotations

from pathlib import Path

from spyweb.model import Outcome
from tests.fakes.scripts import Scripts
from tests.fakes.values import IS

SAMPLES = Path(__file__).parents[1] / "samples" / "sloth"


async def test_a_lock_that_another_has_makes_the_sample_say_so(scripts: Scripts) -> None:
    sample = (SAMPLES / "task_with_lock.lua").read_text(encoding="utf-8")
    before = "coroutine.wrap(function() state.lock('deployment', 'task-9', 300) end)()"
    ending = await scripts.run(f"{before} {sample}")
    assert ending.outcome is Outcome.SUCCESS
    assert len(scripts.texts("warn")) == 1
    assert "as 'task-9'" in scripts.texts("warn")[0]
    await scripts.succeed(f"{IS} is(state.get('deployment:status'), nil)")


async def test_iiis_functions_one_after_another(scripts: Scripts) -> None:
    await scripts.succeed(
        IS
        + """
        local users = "users"
        is(state.set{scope = users, key = "user_123", value = {name = "Alice", visits = 1}},
           {new_value = {name = "Alice", visits = 1}})
        is(state.get{scope = users, key = "user_123"}.name, "Alice")
        local result = state.update{scope = users, key = "user_123", ops = {
          {type = "set", path = "name", value = "Bob"},
          {type = "increment", path = "visits", by = 2},
          {type = "decrement", path = "left", by = 1},
          {type = "merge", path = {"settings", "ui"}, value = {theme = "dark"}},
          {type = "append", path = "log", value = {at = 1}},
          {type = "remove", path = "nothing"},
          {type = "increment", path = "name", by = 1},
        }}
        is(result.old_value, {name = "Alice", visits = 1})
        local new = {name = "Bob", visits = 3, left = -1, settings = {ui = {theme = "dark"}}, log = {{at = 1}}}
        is(result.new_value, new)
        is({#result.errors, result.errors[1].op_index, result.errors[1].code}, {1, 6, "increment.not_number"})
        state.set{scope = "config", key = "app_settings", value = {debug = true}}
        state.set{scope = "cache", key = "page", value = "x", ttl = 60}
        is(state.list{scope = users}, {new})
        is(state.list_groups(), {groups = {"cache", "config", "users"}})
        is(state.delete{scope = users, key = "user_123"}, new)
        is(state.list_groups(), {groups = {"cache", "config"}})
        """
    )
