"""Changes of stored values start jobs, in the real daemon."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from spyweb.model import Outcome, Run
from spyweb.store.sqlite.migrate import load_migrations, migrate
from tests.fakes.project import PATIENCE, Project, eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

# Keeps what it is told, in its own words.
KEEP_ALL = """
function on_state(event, ctx)
  state.list_push("told", ctx.trigger.event_type:sub(7) .. " " .. event.scope .. " " .. event.key .. " "
    .. tostring(event.old_value) .. " " .. tostring(event.new_value))
end
"""
TOLD = 'return state.get("told") or {}'
ON_ORDERS = 'on = [{ scope = "orders" }]'


@pytest.fixture
def project(tmp_path: Path) -> Project:
    (tmp_path / "jobs").mkdir()
    project = Project(tmp_path)
    project.job("told", TOLD)
    return project


def told(project: Project, count: int) -> list[str]:
    """What KEEP_ALL has been told, once it is that much."""

    def enough() -> list[str] | None:
        answer = project.result("told") or []  # an empty table of Lua is shown as {}
        assert isinstance(answer, list)
        return answer if len(answer) >= count else None

    return eventually(enough, f"{count} changes told")


def outcomes(runs: list[Run]) -> set[Outcome | None]:
    return {run.outcome for run in runs}


def test_every_kind_of_change_is_told_in_order(project: Project) -> None:
    project.job("orders", KEEP_ALL, ON_ORDERS)
    project.job(
        "shop",
        """
        state.set { scope = "orders", key = "1", value = "new" }
        state.update { scope = "orders", key = "2", ops = { { type = "increment", path = "", by = 5 } } }
        state.set { scope = "users", key = "1", value = "not an order" }
        state.set { scope = "orders", key = "1", value = "paid" }
        state.delete { scope = "orders", key = "1" }
        """,
    )
    with project.daemon():
        project.result("shop")
        assert told(project, 4) == [
            "created orders 1 nil new",
            "created orders 2 nil 5",
            "updated orders 1 new paid",
            "deleted orders 1 paid nil",
        ]
        runs = project.ended("orders", 4)
        assert [(run.trigger.type, run.trigger.key) for run in runs] == [
            ("state", "1"), ("state", "1"), ("state", "2"), ("state", "1"),
        ]  # fmt: skip


def test_values_arrive_as_they_were_written(project: Project) -> None:
    project.job(
        "orders",
        """
        function on_state(event)
          local v = event.new_value
          state.set("same", #v.big == 900000 and v.bytes == "\\255\\0" and v.list[3] == 3 and v[2.5] == true
            and v.null == state.null and math.type(v.list[1]) == "integer" and event.key == "\\255")
        end
        """,
        ON_ORDERS,
    )
    project.job(
        "shop",
        """
        state.set { scope = "orders", key = "\\255", value = {
          big = ("x"):rep(900000), bytes = "\\255\\0", list = { 1, 2, 3 }, [2.5] = true, null = state.null } }
        """,
    )
    project.job("told", 'return state.get("same")')
    with project.daemon():
        project.result("shop")
        assert outcomes(project.ended("orders")) == {Outcome.SUCCESS}
        assert project.result("told") is True


def all_over(runs: list[Run], count: int) -> list[Run] | None:
    return runs if len([run for run in runs if run.outcome]) >= count else None


def test_a_job_that_starts_itself_is_stopped_at_depth_16(project: Project) -> None:
    again = 'global_store_incr("k", 0, 1)'
    project.job("loop", f"function on_state() {again} end", 'on = [{ scope = "global" }]')
    project.job("shop", again)
    with project.daemon() as daemon:
        project.result("shop")
        eventually(lambda: daemon.has_said("jobs that start each other were stopped"))
        runs = project.ended("loop", 16)
        assert len(runs) == 16
        assert daemon.has_said(" → ".join(["loop"] * 17))
        skipped = [run for run in project.runs("loop") if run.outcome is Outcome.SKIPPED]
        assert [run.reason for run in skipped] == ["the last of 16 changes that led to each other"]


def test_an_edit_of_on_counts_from_then_on(project: Project) -> None:
    path = project.job("orders", KEEP_ALL, 'on = [{ scope = "nothing" }]')
    project.job("shop", 'state.set { scope = "orders", key = "1", value = 1 }')
    with project.daemon() as daemon:
        project.result("shop")
        path.write_text(path.read_text().replace('"nothing"', '"orders"'))
        eventually(lambda: daemon.has_said("settings reloaded"))
        project.result("shop")
        assert told(project, 1) == ["updated orders 1 1 1"]


def test_what_was_written_before_a_crash_is_handed_out_after_it(project: Project) -> None:
    (project.root / "data").mkdir()
    command = [sys.executable, "-m", "tests.fakes.store_child", "watched", str(project.root / "data/spyweb.db"), "k"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]) as child:
        assert child.stdout
        acknowledged = [child.stdout.readline().strip() for _ in range(40)]
        child.kill()
    project.job("orders", 'function on_state(event) state.set("seen:" .. event.key, event.new_value) end', ON_ORDERS)
    project.job("told", 'return #state.keys("seen:*")')
    with project.daemon():
        eventually(lambda: int(str(project.result("told"))) >= 40)
        keys = {run.trigger.key for run in eventually(lambda: all_over(project.runs("orders"), 40))}
    assert set(acknowledged) <= keys


def test_a_run_that_an_earlier_spyweb_left_has_its_change_after_the_upgrade(project: Project) -> None:
    """Two changes: a run of the first was in flight, of the second there was none yet, and nobody knows whose it is."""
    path = project.root / "data/spyweb.db"
    path.parent.mkdir()
    trigger = '{"type": "state", "event_type": "state:created", "scope": "orders", "key": "1", "event": 1, "depth": 1}'
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        migrate(database, path, load_migrations()[:5], 0)
        for number in (1, 2):
            database.execute(
                """
                INSERT INTO event (id, namespace, key, kind, new_version, new_type, new_value, at_ms, depth, delivered)
                VALUES (?1, 'scope:orders', ?2, 'created', 1, 'i', ?1, 5, 0, ?1 = 1)
                """,
                (number, b"%d" % number),
            )
        run = "INSERT INTO run (job, state, attempt, \"trigger\", started_ms) VALUES ('orders', 'running', 1, ?, 5)"
        database.execute(run, (trigger,))
        database.execute("INSERT INTO started VALUES (1, 'orders', 1)")
    body = 'function on_state(event) state.list_push("told", event.key .. " " .. event.new_value) end'
    project.job("orders", body, ON_ORDERS)
    with project.daemon():
        assert told(project, 1) == ["1 1"]
        runs = eventually(lambda: all_over(project.runs("orders"), 2))
    assert [(run.trigger.type, run.outcome) for run in runs] == [("retry", Outcome.SUCCESS), ("state", Outcome.LOST)]
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("SELECT count(*) FROM event").fetchone() == (0,)


def test_what_is_written_while_no_daemon_runs_starts_jobs_once_one_does(project: Project) -> None:
    project.job("orders", KEEP_ALL, ON_ORDERS)
    project.job("shop", 'state.set { scope = "orders", key = "1", value = 1 }')
    project.spyweb("run", "shop")
    with project.daemon():
        assert told(project, 1) == ["created orders 1 nil 1"]


@pytest.mark.deep
def test_killed_again_and_again_it_forgets_no_change(project: Project) -> None:
    project.job("orders", 'function on_state(event) state.increment("seen:" .. event.key) end', ON_ORDERS)
    project.job(
        "shop",
        """
        for i = 1, 20 do
          local n = state.increment("written")
          state.set { scope = "orders", key = tostring(n), value = n }
        end
        """,
        'every = "100ms"',
    )
    project.job(
        "told",
        """
        local orders, missing = state.keys { scope = "orders" }, 0
        for _, key in ipairs(orders) do
          if not state.exists("seen:" .. key) then missing = missing + 1 end
        end
        return { #orders, missing }
        """,
    )

    def counted() -> tuple[int, int]:
        answer = project.result("told")
        assert isinstance(answer, list)
        return answer[0], answer[1]

    written = 0
    for _ in range(3):
        with project.daemon() as daemon:
            goal = written + 60
            eventually(lambda goal=goal: counted()[0] >= goal)  # type: ignore[misc]
            written = counted()[0]
            daemon.kill()
    (project.root / "jobs/shop.lua").unlink()
    with project.daemon():
        eventually(lambda: counted()[1] == 0, patience=3 * PATIENCE)
        assert counted()[0] >= written
