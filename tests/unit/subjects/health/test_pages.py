"""The daemon's health in figures and words."""

from __future__ import annotations

from msgspec.structs import replace

from spyweb.stalls import LoopStats
from spyweb.subjects.health.pages import Disk, gauge_words, pieces_of, protections_of, tiles_of
from spyweb.subjects.health.views import Health, view_health
from spyweb.web.pages.words import NBSP
from tests.fakes.daemon_service import make_stats, make_vitals


def make_health(**changes: object) -> Health:
    return view_health(make_vitals(**changes), ())


def test_figures_that_ask_for_somebody_are_marked() -> None:
    quiet = {tile.words: tile for tile in tiles_of(make_health(), Disk(free_bytes=50, size_bytes=100))}
    assert all(tile.tone == "" for tile in quiet.values())
    assert quiet["behind the schedule"].figure == f"3{NBSP}ms"
    assert quiet["held up"].figure == "never"

    stalls = LoopStats(stalls=2, worst_ms=1_500)
    health = make_health(
        scheduler_lag_ms=6_000, store=make_stats(stalled_s=3.0, pending=9), loop=stalls, storage_errors=4
    )
    loud = {tile.words: tile for tile in tiles_of(health, Disk(free_bytes=4, size_bytes=100))}
    assert loud["behind the schedule"].tone == "bad"
    assert loud["writes wait for the disk"].tone == "bad"
    assert [tile.tone for tile in loud.values() if tile.used is not None] == ["warn"]
    assert loud[f"times held up, at most 1.5{NBSP}s"].figure == "2"
    assert loud["store calls of scripts failed"].figure == "4"


def test_a_store_without_a_disk_has_no_gauge() -> None:
    assert all(tile.used is None for tile in tiles_of(make_health(), None))
    assert Disk(free_bytes=0, size_bytes=0).used == 0
    assert gauge_words(0.955) == f"95.5{NBSP}% of the disk is used"


def test_protections_that_are_missing_are_told_apart() -> None:
    pool = replace(make_vitals().pool, rights=["no files, by Landlock 7", "no_new_privs: not in force (1)"])
    assert [each.is_missing for each in protections_of(make_health(pool=pool))] == [False, True]


def test_commands_are_told_apart_from_words() -> None:
    assert pieces_of("see `spyweb outbox`: all") == [(False, "see "), (True, "spyweb outbox"), (False, ": all")]
    assert pieces_of("`a` `") == [(True, "a"), (False, " ")]
    assert pieces_of("") == []
