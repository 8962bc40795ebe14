from __future__ import annotations

from tests.fakes.ops import make_call, make_world


def test_each_run_counts_its_own_storage_errors() -> None:
    world = make_world()
    first, second = make_call(world), make_call(world)
    first.tally.storage_errors += 1
    assert second.tally.storage_errors == 0


def test_all_runs_count_their_ops_together() -> None:
    world = make_world()
    make_call(world).world.metrics.calls["sleep"] += 1
    make_call(world).world.metrics.calls["sleep"] += 1
    assert world.metrics.calls["sleep"] == 2
