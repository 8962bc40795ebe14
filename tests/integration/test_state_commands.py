"""Every command about stored values, with a daemon's socket behind it and without one: both answer alike."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import datetime
from pathlib import Path

import pytest

from spyweb.clock import RealClock
from spyweb.model import HistoryRule
from spyweb.store.lock import hold_lock
from tests.fakes.command import Answer, spyweb
from tests.fakes.daemon_service import FakeDaemonService, make_state
from tests.fakes.daemon_socket import serve_daemon_socket

CONFIG = """
[daemon]
timezone = "UTC"
[state]
max_value_bytes = 1000
max_key_bytes = 20
history = { state = 5 }
"""
JOB = '-- /// job\n-- name = "Backup"\n-- every = "never"\n-- ///\n'

State = Callable[..., Answer]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "config.toml").write_text(CONFIG)
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "backup.lua").write_text(JOB)
    (tmp_path / "data").mkdir(mode=0o700)
    return tmp_path


@pytest.fixture(params=["offline", "online"])
def state(request: pytest.FixtureRequest, root: Path) -> Iterator[State]:
    """`spyweb state ...` as it is typed."""

    def run(*words: str) -> Answer:
        return spyweb("state", *words, root=root)

    if request.param == "offline":
        yield run
        return
    service = FakeDaemonService(state=make_state(RealClock(), {"state": HistoryRule(versions=5)}))
    with serve_daemon_socket(service, root / "data"):
        yield run


def keys(answer: Answer) -> list[object]:
    return [entry["key"] for entry in answer.json]


# -- looking --------------------------------------------------------------------------------------------------


def test_before_anything_is_kept_that_is_said(state: State) -> None:
    assert state("list") == Answer(0, "", "no entries in state\n")
    assert state("list", "-o", "json").json == []
    assert state("locks") == Answer(0, "", "no lock is held\n")
    assert state("history", "a") == Answer(0, "", "no version of a in state\n")
    assert state("stats").lines[0].split() == ["Total", "Keys:", "0"]


def test_a_list_shows_each_entry_and_how_many_there_are(state: State) -> None:
    state("set", "b", '{"x": [1, 2]}', "--ttl", "2h")
    state("set", "a", "x" * 60)
    state("set", "ab", "5")
    answer = state("list")
    assert answer.lines[0].split() == ["key", "value", "type", "ttl", "updated"]
    rows = [row[:4] for row in answer.table[:-1]]
    assert rows == [
        ["a", "x" * 49 + "…", "string", "-"],
        ["ab", "5", "number", "-"],
        ["b", '{"x":[1,2]}', "table", "2h"],
    ]
    assert answer.lines[-1] == "Total: 3 keys"
    assert state("list", "a", "-o", "text").lines[-1] == "Total: 2 keys"
    assert keys(state("list", "-n", "1", "-o", "json")) == ["a"]


def test_a_list_as_json_has_all_that_is_known(state: State) -> None:
    state("set", "a", "[1, null]")
    (entry,) = state("list", "-o", "json").json
    assert {name: entry[name] for name in ("namespace", "key", "value", "type", "version", "expires_ms")} == {
        "namespace": "state",
        "key": "a",
        "value": [1, None],
        "type": "list",
        "version": 1,
        "expires_ms": None,
    }
    assert entry == state("show", "a", "-o", "json").json


def test_compat_has_the_shape_that_programs_for_sloth_runner_read(state: State) -> None:
    state("set", "a", "[1, null]")
    state("set", "b", "text")
    assert state("list", "--compat").json == {"a": "[1,null]", "b": "text"}
    assert state("list", "b", "--compat", "--output", "json").json == {"b": "text"}
    entry, when = state("show", "b", "-o", "json").json, re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
    shown = state("show", "b", "--compat").json
    assert list(shown) == ["key", "value", "created_at", "updated_at"]
    assert (shown["key"], shown["value"]) == ("b", "text")
    assert when.fullmatch(shown["created_at"])
    assert datetime.fromisoformat(shown["updated_at"]).timestamp() == entry["updated_ms"] // 1000
    figures = state("stats", "--compat").json
    assert list(figures) == ["total_keys", "total_size", "last_modified", "backend"]
    assert figures["total_keys"] == 2


@pytest.mark.parametrize(
    ("words", "out", "as_json"),
    [
        (["hello"], "hello\n", '"hello"\n'),
        (["5"], "5\n", "5\n"),
        (["5", "--string"], "5\n", '"5"\n'),
        (['{"b": [1]}'], '{"b":[1]}\n', None),
    ],
)
def test_get_prints_the_value_alone(state: State, words: list[str], out: str, as_json: str | None) -> None:
    state("set", "a", *words)
    assert state("get", "a") == Answer(0, out, "")
    if as_json:
        assert state("get", "a", "-o", "json").out == as_json


@pytest.mark.parametrize("word", ["get", "show"])
def test_a_key_that_is_not_there_exits_1(state: State, word: str) -> None:
    assert state(word, "a") == Answer(1, "", "spyweb: there is no key a in state\n")


def test_stats_count_everything_or_one_namespace(state: State) -> None:
    state("set", "a", "1")
    state("set", "a", "1", "--global")
    stats = state("stats", "-o", "json").json
    assert stats["total_keys"] == 2
    assert state("stats", "--global", "-o", "json").json["total_keys"] == 1


# -- whose ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "namespace"),
    [
        ([], "state"),
        (["--agent", "local"], "state"),
        (["--agent", "prod"], "state@prod"),
        (["--scope", "orders"], "scope:orders"),
        (["--job", "backup"], "job:backup"),
        (["--job", "Backup"], "job:backup"),
        (["--job", "long-gone"], "job:long-gone"),
        (["--global"], "global"),
    ],
)
def test_each_family_has_keys_of_its_own(state: State, words: list[str], namespace: str) -> None:
    state("set", "a", "text", *words)
    (entry,) = state("list", *words, "-o", "json").json
    assert entry["namespace"] == namespace
    assert state("get", "a", *words).out == "text\n"


def test_two_families_at_once_are_refused(state: State) -> None:
    answer = state("list", "--job", "prices", "--global")
    assert answer == Answer(2, "", "spyweb: --job, --scope, --agent and --global exclude each other\n")


def test_what_store_set_would_keep_is_text(state: State) -> None:
    state("set", "n", "5", "--job", "prices")
    (entry,) = state("list", "--job", "prices", "-o", "json").json
    assert (entry["value"], entry["type"]) == ("5", "string")


# -- changing -------------------------------------------------------------------------------------------------


def test_set_says_whether_the_key_is_new(state: State) -> None:
    assert state("set", "a", "1").out == "a was created\n"
    assert state("set", "a", "2") == Answer(0, "a was replaced\n", "")
    assert state("set", "a", "2", "-o", "json").json == {"key": "a", "created": False}


def test_set_replaces_the_ttl(state: State) -> None:
    state("set", "a", "1", "--ttl", "1h")
    assert state("list").table[0][3] == "1h"
    state("set", "a", "1")
    assert state("list").table[0][3] == "-"


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["set", "k" * 21, "1"], f"{'k' * 21}: the key of 21 bytes is over the limit of 20"),
        (["set", "a", "x" * 1001], "a: the value of 1001 bytes is over the limit of 1000"),
        (["set", "a", "null"], "a: only a scope can keep JSON's null, by itself or in a table"),
        (["set", "a", "1", "--ttl", "soon"], "--ttl: expected a number of seconds"),
        (["list", "--scope", ""], "--scope: can't be blank"),
        (["rollback", "a", "1", "-y"], "a: there is no version 1"),
        (["locks", "break"], "`spyweb state locks break` needs the lock's NAME"),
    ],
)
def test_what_can_not_be_is_one_line_with_key_and_reason(state: State, words: list[str], reason: str) -> None:
    answer = state(*words)
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith(f"spyweb: {reason}")
    assert len(answer.err.splitlines()) == 1
    assert state("list").out == ""


def test_delete_and_clear_say_what_became_of_it(state: State) -> None:
    for key in ("a1", "a2", "b"):
        state("set", key, "1")
    assert state("delete", "b", "-y").out == "b was deleted\n"
    assert state("delete", "b", "--yes") == Answer(0, "b does not exist\n", "")
    assert state("clear", "a?", "-y").out == "2 entries deleted\n"
    assert state("clear").out == "0 entries deleted\n"


@pytest.mark.parametrize(
    "words", [["delete", "a"], ["clear"], ["clear", "a*"], ["rollback", "a", "1"], ["locks", "break", "a"]]
)
def test_without_a_terminal_what_destroys_something_is_refused(state: State, words: list[str]) -> None:
    state("set", "a", "1")
    state("set", "a", "2")
    answer = state(*words)
    assert (answer.code, answer.out) == (2, "")
    assert "Input is not a terminal, so nobody can answer: -y means yes" in answer.err
    assert state("get", "a").out == "2\n"


def test_an_earlier_version_is_put_back_as_a_new_one(state: State) -> None:
    for value in ("one", "two", "three"):
        state("set", "a", value)
    rows = [row[:3] for row in state("history", "a").table]
    assert rows == [["3", "three", "string"], ["2", "two", "string"], ["1", "one", "string"]]
    assert state("rollback", "a", "1", "-y").out == "a has the value of version 1 again\n"
    assert state("get", "a").out == "one\n"
    versions = state("history", "a", "-n", "2", "-o", "json").json
    assert [(entry["version"], entry["value"]) for entry in versions] == [(4, "one"), (3, "three")]


def test_a_change_without_a_daemon_starts_a_job_once_one_runs_and_keeps_the_history_that_jobs_ask_for(
    root: Path,
) -> None:
    (root / "jobs" / "hears.lua").write_text('-- /// job\n-- on = [{ scope = "state" }]\n-- history = 3\n-- ///\n')
    for value in ("one", "two"):
        assert spyweb("state", "set", "a", value, root=root).code == 0
        assert spyweb("state", "set", "a", value, "--job", "hears", root=root).code == 0
    with closing(sqlite3.connect(root / "data" / "spyweb.db")) as database:
        pending = database.execute("SELECT namespace, key, kind FROM event ORDER BY id").fetchall()
    assert pending == [("state", b"a", "created"), ("state", b"a", "updated")]
    versions = spyweb("state", "history", "a", "--job", "hears", "-o", "json", root=root).json
    assert [entry["value"] for entry in versions] == ["two", "one"]


def test_breaking_a_lock_that_nobody_holds_says_so(state: State) -> None:
    assert state("locks", "break", "deploy", "-y").out == "deploy is not held\n"


def test_the_keys_of_a_renamed_job_are_moved(state: State) -> None:
    state("set", "a", "1", "--job", "old")
    assert state("move", "old", "new").out == "1 entry and 0 records moved from old to new\n"
    assert keys(state("list", "--job", "new", "-o", "json")) == ["a"]
    state("set", "a", "2", "--job", "old")
    answer = state("move", "old", "new")
    assert answer.code == 2
    assert "both have the key 'a'" in answer.err
    assert state("get", "a", "--job", "old").out == "2\n"


@pytest.mark.parametrize("new", ["", "New Prices", "new/prices", "_new_"])
def test_keys_are_moved_only_to_where_a_job_can_find_them(state: State, new: str) -> None:
    state("set", "a", "1", "--job", "old")
    answer = state("move", "old", new)
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith(f"spyweb: '{new}' is not a job's id")
    assert keys(state("list", "--job", "old", "-o", "json")) == ["a"]


# -- export and import ----------------------------------------------------------------------------------------


def test_what_is_exported_is_imported_again_exactly(state: State, root: Path) -> None:
    state("set", "a", '{"$table": [[1, {"$base64": "/w=="}], ["$base64", null]]}', "--ttl", "1h")
    state("set", "n", "5", "--global")
    state("set", "o", "[[], {}]", "--scope", "s p")
    file = root / "all.jsonl"
    assert state("export", str(file)).out == f"3 entries exported to {file}\n"
    assert file.stat().st_mode & 0o777 == 0o600
    before = [state("list", *words, "-o", "json").json for words in ([], ["--global"], ["--scope", "s p"])]
    for words in ([], ["--global"], ["--scope", "s p"]):
        state("clear", "-y", *words)
    assert state("import", str(file)).out == "3 added, 0 replaced\n"
    after = [state("list", *words, "-o", "json").json for words in ([], ["--global"], ["--scope", "s p"])]
    assert [without_version(entries) for entries in after] == [without_version(entries) for entries in before]
    state("export", str(file.with_suffix(".again")))
    assert sorted(file.with_suffix(".again").read_text().splitlines()) == sorted(file.read_text().splitlines())


def without_version(entries: list[dict[str, object]]) -> list[dict[str, object]]:
    return [{name: value for name, value in entry.items() if name != "version"} for entry in entries]


def test_an_import_that_would_replace_something_asks_first(state: State, root: Path) -> None:
    file = root / "in.jsonl"
    file.write_text(
        '{"namespace":"state","key":"a","value":1}\n{"namespace":"state","key":"b","value":2}\n'
        '{"namespace":"state","key":"c","value":3,"expires_ms":1}\n'
    )
    state("set", "a", "old")
    assert state("import", str(file), "--dry-run").out == "it would be 1 added, 1 replaced, 1 left out: expired\n"
    assert [row[:2] for row in state("list").table[:-1]] == [["a", "old"]]
    refused = state("import", str(file))
    assert (refused.code, refused.out) == (2, "")
    assert refused.err == "spyweb: Replace 1 entry? Input is not a terminal, so nobody can answer: -y means yes\n"
    assert state("get", "a").out == "old\n"
    assert state("import", str(file), "-y", "-o", "json").json == {
        "added": 1,
        "replaced": 1,
        "expired": 1,
        "dry_run": False,
    }
    assert state("get", "a").out == "1\n"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "is not JSON"),
        ('{"namespace":"state","key":"a","value":1}', "has the same key as line 1"),
    ],
)
def test_a_damaged_file_is_told_by_its_line_and_nothing_is_imported(
    state: State, root: Path, line: str, reason: str
) -> None:
    file = root / "in.jsonl"
    file.write_text(f'{{"namespace":"state","key":"a","value":1}}\n\n{line}\n')
    answer = state("import", str(file), "-y")
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith(f"spyweb: {file}:3: {reason}")
    assert answer.err.endswith("; nothing was imported\n")
    assert state("list").out == ""


def test_agents_are_for_sloths_alone(state: State, root: Path) -> None:
    assert state("import", str(root / "x"), "--agent", "prod").code == 2


def test_many_entries_go_out_and_come_back(state: State, root: Path) -> None:
    file = root / "in.jsonl"
    entries = [{"namespace": "state", "key": f"k{n:04}", "value": "x" * 900} for n in range(450)]
    file.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    assert state("import", str(file)).out == "450 added, 0 replaced\n"
    assert state("list").lines[-1] == "Total: 450 keys"
    assert len(state("export", "-").lines) == 450


# -- without a daemon -----------------------------------------------------------------------------------------


def test_a_watch_needs_a_daemon(root: Path) -> None:
    answer = spyweb("state", "watch", root=root)
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith(f"spyweb: no daemon runs in {root}, so nothing changes: ")


def test_what_was_kept_in_memory_went_with_the_daemon(root: Path) -> None:
    (root / "config.toml").write_text('[store]\nurl = "memory:"\n')
    answer = spyweb("state", "list", root=root)
    assert answer == Answer(
        2, "", f"spyweb: no daemon runs in {root}, and its database was in memory: it ended with the daemon\n"
    )


def test_looking_makes_no_database(root: Path) -> None:
    spyweb("state", "list", root=root)
    spyweb("state", "export", "-", root=root)
    assert not list((root / "data").iterdir())


def test_what_is_kept_is_encrypted_with_another_key(root: Path) -> None:
    for name, byte in (("one.key", b"1"), ("two.key", b"2")):
        (root / name).write_bytes(byte * 32)
        (root / name).chmod(0o600)
    (root / "config.toml").write_text(f'{CONFIG}\n[store]\nkey_file = "one.key"\n')
    spyweb("state", "set", "a", "secret", root=root)
    assert spyweb("state", "rekey", "two.key", root=root).code == 2
    answer = spyweb("state", "rekey", "two.key", "-y", root=root)
    assert answer == Answer(0, 'now set key_file = "two.key" in [store] of config.toml\n', "")
    assert spyweb("state", "get", "a", root=root).code == 2
    (root / "config.toml").write_text(f'{CONFIG}\n[store]\nkey_file = "two.key"\n')
    assert spyweb("state", "get", "a", root=root).out == "secret\n"
    assert spyweb("state", "rekey", "none", "-y", root=root).code == 0
    (root / "config.toml").write_text(CONFIG)
    assert spyweb("state", "get", "a", root=root).out == "secret\n"


def test_nothing_is_encrypted_behind_a_daemon_or_before_there_is_anything(root: Path) -> None:
    assert "there is no database" in spyweb("state", "rekey", "none", "-y", root=root).err
    spyweb("state", "set", "a", "1", root=root)
    with hold_lock(root / "data"):
        assert "is in use by pid" in spyweb("state", "rekey", "none", "-y", root=root).err
    assert "there is no key file" in spyweb("state", "rekey", "absent.key", "-y", root=root).err
