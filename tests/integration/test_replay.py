"""`spyweb replay`: a recorded run is run again, in a real VM, on what it was answered."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.command import Answer, spyweb
from tests.fakes.http_server import Answer as Page
from tests.fakes.http_server import Arrived, serving

STATE = 'state.set({"key":"seen","scope":"shop","value":X})'
VALUE, READ = '[1,{"a":"b"}]', 'fs_read("no/such/file")'
SCRIPT = """
function run(ctx)
  local count = tonumber(store_get("count") or "0")
  store_set("count", tostring(count + 1))
  log("begin", os.time(), os.date("%H:%M:%S"), os.clock(), math.random(1e9), crypto.uuid(), ctx.run_id, values.greeting)
  local order = {}
  local function fetch(name, ms)
    sleep(ms)
    local response, problem = http_get("http://ADDRESS/" .. name)
    order[#order + 1] = name
    return response and response.body or problem.message
  end
  local slow, fast, none = parallel(
    function() return fetch("slow", 60) end,
    function() return fetch("fast", 1) end,
    function() return select(2, pcall(store_set)) end)
  log("answers", slow, fast, tostring(none), table.concat(order, " "))
  state.set({scope = "shop", key = "seen", value = {1, {a = "b"}}})
  log(json_encode(state.get({scope = "shop", key = "seen"})))
  log(tostring(select(2, pcall(fs_read, "no/such/file"))))
  error("gave up after " .. count)
end
"""


@pytest.fixture
def arrived() -> list[str]:
    return []


@pytest.fixture
def address(arrived: list[str]) -> Iterator[str]:
    def answer(request: Arrived) -> Page:
        arrived.append(request.path)
        return Page(body=f"page {len(arrived)} of {request.path}".encode())

    with serving(answer) as origin:
        yield origin.removeprefix("http://")


@pytest.fixture
def root(tmp_path: Path, address: str) -> Path:
    (tmp_path / "config.toml").write_text('[values]\ngreeting = "hello"\n')
    (tmp_path / "jobs").mkdir()
    write(tmp_path, SCRIPT.replace("ADDRESS", address))
    return tmp_path


def write(root: Path, script: str, settings: str = "") -> None:
    (root / "jobs" / "shop.lua").write_text(f'-- /// job\n-- every = "1h"\n{settings}-- ///\n{script}')


def edit(root: Path, before: str, after: str) -> None:
    path = root / "jobs" / "shop.lua"
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after))


def lines(answer: Answer) -> list[str]:
    """What was logged, without the times."""
    return [line.split(" ", 1)[1] for line in answer.lines if line[10:11] == "T"]


def replayed(root: Path, run: int = 1) -> Any:
    return spyweb("replay", str(run), "-o", "json", root=root).json


def test_the_same_file_replays_the_same_log_and_end_and_reaches_nothing(root: Path, arrived: list[str]) -> None:
    recorded = spyweb("run", "shop", root=root)
    before = [*arrived]

    again = spyweb("replay", "1", root=root)

    assert (again.code, lines(again)) == (0, lines(recorded)), again
    assert "of /fast" in lines(again)[1]
    assert again.lines[-3:] == [
        "same 10 ops as recorded",
        "recorded  failed: jobs/shop.lua:24: gave up after 0",
        "now       failed: jobs/shop.lua:24: gave up after 0",
    ]
    assert arrived == before
    assert spyweb("replay", "1", root=root).lines[-3:] == again.lines[-3:], "it stores nothing that the next one meets"


@pytest.mark.parametrize(
    ("before", "after", "difference", "line"),
    [
        ("tostring(count + 1)", '"9"', (2, 'store_set("count", "1")', 'store_set("count", "9")'), 7),
        ('log("begin"', 'store_get("new") log("begin"', (8, STATE.replace("X", VALUE), 'store_get("new")'), 8),
        ('"fast", 1)', '"fast", 2)', (4, "sleep(1)", "sleep(2)"), 16),
        ('{a = "b"}', "7", (8, STATE.replace("X", VALUE), STATE.replace("X", "[1,7]")), 21),
        ("error(", "sleep(9) error(", (11, "", "sleep(9)"), 24),
        ("log(tostring(select(2, pcall(fs_read", "log(tostring(select(2, pcall(tostring", (10, READ, ""), None),
    ],
)
def test_an_edited_file_goes_another_way_at_the_op_that_was_edited(
    root: Path, before: str, after: str, difference: tuple[int, str, str], line: int | None
) -> None:
    spyweb("run", "shop", root=root)
    edit(root, before, after)

    again = replayed(root)

    assert again["is_same"] is False
    assert tuple(again["difference"].values()) == difference
    assert again["place"] == (line and ["jobs/shop.lua", line])


def test_another_end_after_the_same_ops_is_told_beside_the_recorded_one(root: Path) -> None:
    spyweb("run", "shop", root=root)
    edit(root, 'error("gave up', 'return ("gave up')

    answer = spyweb("replay", "1", root=root)

    assert answer.code == 1
    assert answer.lines[-3:] == [
        "differs 10 ops as recorded, and another end",
        "recorded  failed: jobs/shop.lua:24: gave up after 0",
        "now       success: gave up after 0",
    ]


def test_a_run_that_was_ended_while_it_waited_is_ended_there_again_and_sooner(root: Path) -> None:
    script = 'sleep(1) parallel(function() sleep(2) log("both wait") end, function() sleep(60000) end)'
    write(root, script, '-- timeout = "400ms"\n')
    recorded = spyweb("run", "shop", root=root)
    write(root, script, '-- timeout = "10m"\n')

    answer = spyweb("replay", "1", root=root)

    assert (answer.code, lines(answer)) == (0, lines(recorded)), answer
    assert answer.lines[-3] == "same 2 ops as recorded"


def test_a_branch_that_was_ended_alone_is_ended_again(root: Path) -> None:
    write(
        root,
        """
        task("quick"):command(function() sleep(60000) end):timeout("200ms"):build()
        task("other"):command(function() sleep(1) error("no") end):build()
        """,
    )
    recorded = spyweb("run", "shop", root=root)
    assert recorded.code == 1

    assert spyweb("replay", "1", root=root).lines[-1] == spyweb("replay", "1", root=root).lines[-1]


def test_secrets_are_never_in_a_record_and_it_replays_without_them(
    root: Path, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    marked = "MARKED-s3cret"
    monkeypatch.setenv("SPYWEB_SHOP_TOKEN", f"{marked}-of-env")
    write(
        root,
        f"""
        local login = http_post("http://{address}/login?api_key={marked}-in-url", "user=me&password={marked}-in-form")
        local own = http_get("http://{address}/x", {{Authorization = "Bearer " .. env_get("SHOP_TOKEN")}})
        http_get("http://me:{marked}-of-me@{address}/y", {{["X-Session-Token"] = "{marked}-by-name"}})
        store_set("note", "signed in with {marked}-by-name")
        store_set("api_key", "{marked}-kept")
        state.set({{scope = "shop", key = "password", value = {{"{marked}-in-table"}}}})
        http_get("http://{address}/z/" .. store_get("api_key") .. state.get({{scope = "shop", key = "password"}})[1])
        error("no")
        """,
    )
    spyweb("run", "shop", root=root)

    assert spyweb("replay", "1", root=root).code == 0
    monkeypatch.delenv("SPYWEB_SHOP_TOKEN")
    assert spyweb("replay", "1", root=root).code == 0, "it needs none of them"
    with sqlite3.connect(root / "data" / "spyweb.db") as database:
        (record,) = database.execute("SELECT data FROM recording").fetchone()
    assert b"/login?api_key=[hidden]" in record
    assert marked.encode() not in record


@pytest.mark.parametrize(
    ("settings", "fails", "has_record"),
    [
        ("", True, True),
        ("", False, False),
        ('-- record = "always"\n', False, True),
        ('-- record = "never"\n', True, False),
    ],
)
def test_a_job_says_which_of_its_runs_are_recorded(root: Path, settings: str, fails: bool, has_record: bool) -> None:
    write(root, "sleep(1)" + " error('no')" * fails, settings)
    spyweb("run", "shop", root=root)

    answer = spyweb("replay", "1", root=root)

    assert (answer.code == 0) is has_record, answer
    if not has_record:
        assert answer.err == (
            "spyweb: run 1 of shop has no record: the last 5 failed runs of a script job have one, unless its `record` "
            "says otherwise\n"
        )


def test_what_can_t_be_replayed_says_so_in_one_line(root: Path, address: str) -> None:
    write(root, f'http_get("http://{address}/" .. ("x"):rep(99000)) error("no")')
    spyweb("run", "shop", root=root)
    write(root, 'store_set("k", ("x"):rep(70000)) store_get("k") error("no")')
    spyweb("run", "shop", root=root)

    assert spyweb("replay", "9", root=root).err == "spyweb: there is no run 9: it may have been pruned\n"
    assert spyweb("replay", "2", root=root).lines[0] == (
        "unknown 1 op as recorded, then the answer of op 2, store_get, was too large to be recorded"
    )
    write(root, "return +", "")
    assert "jobs/shop.lua" in spyweb("replay", "2", root=root).out
    (root / "jobs" / "shop.lua").unlink()
    assert spyweb("replay", "2", root=root).err == "spyweb: run 2 was of shop, and there is no such job any more\n"


def test_step_by_step_each_op_is_named_before_its_answer(root: Path) -> None:
    write(root, "store_set('a', '1') log(store_get('a')) error('no')")
    spyweb("run", "shop", root=root)

    answer = spyweb("replay", "1", "--step", root=root)

    assert answer.err == 'op 1: store_set("a", "1") op 2: store_get("a") '
    assert answer.lines[-3] == "same 2 ops as recorded"


def test_a_check_is_replayed_too(root: Path, address: str) -> None:
    settings = f'check = "http"\nurl = "http://{address}/"\nexpect = ["status == 404"]\nevery = "1h"\nconfirm = 1\n'
    (root / "jobs" / "site.toml").write_text(settings)
    spyweb("run", "site", root=root)

    answer = spyweb("replay", "1", root=root)

    assert answer.code == 0, answer
    assert "status == 404" in answer.lines[-1]
