from __future__ import annotations

import os
from pathlib import Path

import pytest

from spyweb.jobs.discover import Scan, scan
from spyweb.model import Every
from spyweb.settings import load_settings

EVERY_SECOND = '-- /// job\n-- every = "1s"\n-- ///\n'


def project(root: Path, files: dict[str, str | bytes]) -> Path:
    (root / "jobs").mkdir(exist_ok=True)
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return root


def scanned(root: Path, files: dict[str, str | bytes]) -> Scan:
    project(root, files)
    return scan(root, load_settings(root, environ={}, flags={}))


def told(problems: object) -> list[str]:
    assert isinstance(problems, list | tuple)
    return [str(problem) for problem in problems]


def test_both_kinds_of_script_job_are_found(tmp_path: Path) -> None:
    found = scanned(tmp_path, {"jobs/one.lua": EVERY_SECOND, "jobs/Two Words/init.lua": "print(1)"})

    assert list(found.jobs) == ["two_words", "one"]
    two, one = (file.spec for file in found.jobs.values())
    assert (one.name, one.path, one.folder, one.schedule) == ("one", "jobs/one.lua", "jobs/one", Every(period_ms=1_000))
    assert (two.name, two.path, two.folder) == ("Two Words", "jobs/Two Words/init.lua", "jobs/Two Words")
    assert not found.problems
    assert not found.warnings
    assert not found.broken


def test_a_name_in_the_block_gives_the_id_and_the_file_keeps_the_folder(tmp_path: Path) -> None:
    found = scanned(tmp_path, {"jobs/a.lua": '-- /// job\n-- name = "Price Watch"\n-- ///'})

    (spec,) = (file.spec for file in found.jobs.values())
    assert (spec.id, spec.folder) == ("price_watch", "jobs/a")


def test_the_job_s_section_is_found_by_id_or_by_name(tmp_path: Path) -> None:
    found = scanned(
        tmp_path,
        {
            "config.toml": '[jobs.price_watch]\ntimeout = 1\n[jobs."My Job"]\ntimeout = 2\n[defaults]\nretries = 3',
            "jobs/a.lua": '-- /// job\n-- name = "Price Watch"\n-- ///',
            "jobs/My Job.lua": "",
        },
    )

    assert [(file.spec.timeout_ms, file.spec.retry.retries) for file in found.jobs.values()] == [(2_000, 3), (1_000, 3)]


def test_sections_for_no_job_are_a_warning_with_the_nearest_name(tmp_path: Path) -> None:
    found = scanned(tmp_path, {"config.toml": "[jobs.pirces]\ntimeout = 1", "jobs/prices.lua": ""})

    assert told(found.warnings) == ['config.toml:1: jobs.pirces: no job "pirces"; did you mean "prices"?']


def test_two_sections_for_one_job_are_a_problem(tmp_path: Path) -> None:
    found = scanned(tmp_path, {"config.toml": '[jobs.a]\n[jobs."A!"]\n', "jobs/a.lua": ""})

    assert told(found.problems) == ["config.toml:2: jobs.A!: a second section for the job a"]


def test_a_broken_job_does_not_hinder_the_others(tmp_path: Path) -> None:
    found = scanned(tmp_path, {"jobs/bad.lua": "-- /// job\n-- every = 5\n-- evry = 6\n-- ///", "jobs/good.lua": ""})

    assert list(found.jobs) == ["good"]
    assert list(found.broken) == ["bad"]
    assert told(found.problems) == ['jobs/bad.lua:3: evry: unknown key; did you mean "every"?']


def test_a_broken_block_still_tells_which_job_it_belongs_to(tmp_path: Path) -> None:
    found = scanned(tmp_path, {"jobs/a.lua": '-- /// job\n-- name = "Price Watch"\n-- every = = 5\n-- ///'})

    assert list(found.broken) == ["price_watch"]


def test_wrong_defaults_are_told_once_and_stop_no_job(tmp_path: Path) -> None:
    found = scanned(tmp_path, {"config.toml": "[defaults]\ntimeout = 'x'", "jobs/a.lua": "", "jobs/b.lua": ""})

    assert len(found.problems) == 1
    assert list(found.jobs) == ["a", "b"]


def test_two_files_with_one_id_are_both_refused_and_named(tmp_path: Path) -> None:
    found = scanned(tmp_path, {"jobs/Hello World.lua": "", "jobs/hello-world.lua": "", "jobs/other.lua": ""})

    assert list(found.jobs) == ["other"]
    assert list(found.broken) == ["hello_world"]
    assert told(found.problems) == [
        'jobs/hello-world.lua: gives the id "hello_world", and so does jobs/Hello World.lua; ids must differ'
    ]


def test_a_file_and_a_folder_of_one_name_are_duplicates(tmp_path: Path) -> None:
    found = scanned(tmp_path, {"jobs/a.lua": "", "jobs/a/init.lua": ""})

    assert not found.jobs
    assert "jobs/a.lua" in told(found.problems)[0]
    assert "jobs/a/init.lua" in told(found.problems)[0]


def test_a_name_without_letters_gives_no_id(tmp_path: Path) -> None:
    found = scanned(tmp_path, {"jobs/!!!.lua": "", "jobs/---.lua": ""})

    assert not found.jobs
    assert [problem.file for problem in found.problems] == ["jobs/!!!.lua", "jobs/---.lua"]
    assert all("holds no letter or digit" in problem.reason for problem in found.problems)


def test_a_folder_that_is_two_kinds_of_job_is_a_problem(tmp_path: Path) -> None:
    found = scanned(tmp_path, {"jobs/a/init.lua": "", "jobs/a/config.toml": ""})

    assert told(found.problems) == ["jobs/a/: holds both init.lua and config.toml; a job is one or the other"]


def test_monitor_jobs_are_a_warning_for_now(tmp_path: Path) -> None:
    found = scanned(tmp_path, {"jobs/a/config.toml": "", "jobs.toml": ""})

    assert told(found.warnings) == [
        "jobs.toml: monitor jobs are not part of this version yet",
        "jobs/a/config.toml: monitor jobs are not part of this version yet",
    ]


def test_leftovers_and_other_files_are_ignored(tmp_path: Path) -> None:
    names = [".hidden.lua", ".#a.lua", "a.lua~", "a.lua.swp", ".a.lua.swp", "README.md", "#a.lua#"]
    found = scanned(tmp_path, {**{f"jobs/{name}": "" for name in names}, "jobs/a.lua": "", "jobs/a/data.csv": ""})

    assert list(found.jobs) == ["a"]
    assert not found.problems
    assert len(found.ignored) == len(names) + 1


def test_a_missing_jobs_folder_is_one_problem_that_says_what_to_do(tmp_path: Path) -> None:
    found = scan(tmp_path, load_settings(tmp_path, environ={}, flags={}))

    (problem,) = told(found.problems)
    assert problem.startswith("jobs/: there is no such folder in ")
    assert "drop a NAME.lua file" in problem


def test_an_empty_jobs_folder_is_no_problem(tmp_path: Path) -> None:
    found = scanned(tmp_path, {})

    assert (found.jobs, found.problems) == ({}, [])


def test_a_job_after_an_unknown_one_is_refused_with_the_nearest_name(tmp_path: Path) -> None:
    found = scanned(tmp_path, {"jobs/a.lua": '-- /// job\n-- after = "pirces"\n-- ///', "jobs/prices.lua": ""})

    assert told(found.problems) == ['jobs/a.lua:2: after: no job "pirces"; did you mean "prices"?']
    assert list(found.jobs) == ["prices"]


def test_a_job_after_a_broken_one_waits_for_its_repair(tmp_path: Path) -> None:
    found = scanned(tmp_path, {"jobs/a.lua": '-- /// job\n-- after = "b"\n-- ///', "jobs/b.lua": "-- /// job\n"})

    assert list(found.jobs) == ["a"]


def test_a_cycle_in_after_is_named_and_refuses_its_jobs(tmp_path: Path) -> None:
    def after(job: str) -> str:
        return f'-- /// job\n-- after = "{job}"\n-- ///'

    found = scanned(tmp_path, {"jobs/a.lua": after("b"), "jobs/b.lua": after("A"), "jobs/c.lua": after("a")})

    assert list(found.jobs) == ["c"]
    assert told(found.problems) == [
        "jobs/a.lua:2: after: these jobs wait for each other: a after b after a",
        "jobs/b.lua:2: after: these jobs wait for each other: a after b after a",
    ]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"\x1bLua\x54\x00", "jobs/a.lua:1: is Lua bytecode; only source text is run"),
        (b"\xff\xfep\x00", "jobs/a.lua:1: is UTF-16 text; save it as UTF-8"),
        (b"x" * (1 << 20) + b"y", "jobs/a.lua: is larger than 1MB"),
    ],
)
def test_what_is_no_lua_source_is_refused(tmp_path: Path, content: bytes, reason: str) -> None:
    assert told(scanned(tmp_path, {"jobs/a.lua": content}).problems) == [reason]


def test_a_byte_order_mark_and_a_shebang_do_not_reach_lua(tmp_path: Path) -> None:
    found = scanned(tmp_path, {"jobs/a.lua": b"\xef\xbb\xbf#!/usr/bin/lua\n" + EVERY_SECOND.encode()})

    (file,) = found.jobs.values()
    assert file.source.startswith(b"--#!/usr/bin/lua\n-- /// job")
    assert file.spec.schedule == Every(period_ms=1_000)


def test_a_source_of_any_bytes_is_kept_as_it_is(tmp_path: Path) -> None:
    (file,) = scanned(tmp_path, {"jobs/a.lua": b'return "\xff\x00"'}).jobs.values()

    assert file.source == b'return "\xff\x00"'


def test_the_digest_changes_with_the_source_alone(tmp_path: Path) -> None:
    first = scanned(tmp_path, {"jobs/a.lua": "x = 1"}).jobs
    again = scanned(tmp_path, {"jobs/a.lua": "x = 1", "config.toml": "[defaults]\nretries = 1"}).jobs
    edited = scanned(tmp_path, {"jobs/a.lua": "x = 2"}).jobs

    assert [file.digest for file in first.values()] == [file.digest for file in again.values()]
    assert first != again
    assert [file.digest for file in first.values()] != [file.digest for file in edited.values()]


def test_links_inside_the_project_are_followed_and_links_out_of_it_refused(tmp_path: Path) -> None:
    outside = tmp_path / "outside.lua"
    outside.write_text("")
    (tmp_path / "project").mkdir()
    root = project(tmp_path / "project", {"shared/x.lua": ""})
    (root / "jobs/inside.lua").symlink_to("../shared/x.lua")
    (root / "jobs/out.lua").symlink_to(outside)
    (root / "jobs/out").symlink_to(tmp_path)
    (root / "jobs/folder").mkdir()
    (root / "jobs/folder/init.lua").symlink_to(outside)
    found = scan(root, load_settings(root, environ={}, flags={}))

    assert list(found.jobs) == ["inside"]
    assert told(found.problems) == [
        "jobs/folder: can't be read: a link that leaves the project",
        "jobs/out: can't be read: a link that leaves the project",
        "jobs/out.lua: can't be read: a link that leaves the project",
    ]


def test_what_cannot_be_read_is_one_clear_line(tmp_path: Path) -> None:
    root = project(tmp_path, {"jobs/fine.lua": ""})
    (root / "jobs/dangling.lua").symlink_to("nowhere.lua")
    (root / "jobs/loop.lua").symlink_to("loop.lua")
    os.mkfifo(root / "jobs/pipe.lua")
    found = scan(root, load_settings(root, environ={}, flags={}))

    assert list(found.jobs) == ["fine"]
    assert told(found.problems) == [
        "jobs/dangling.lua: can't be read: No such file or directory",
        "jobs/loop.lua: can't be read: Too many levels of symbolic links",
        "jobs/pipe.lua: can't be read: not a regular file",
    ]


def test_a_file_where_the_jobs_folder_should_be_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "jobs").write_text("")

    assert told(scan(tmp_path, load_settings(tmp_path, environ={}, flags={})).problems) == [
        "jobs/: can't be read: Not a directory"
    ]


def test_a_file_name_that_is_not_utf8_is_refused_and_can_be_shown(tmp_path: Path) -> None:
    root = project(tmp_path, {})
    Path(os.fsdecode(os.fsencode(root) + b"/jobs/caf\xe9.lua")).write_text("")
    found = scan(root, load_settings(root, environ={}, flags={}))

    assert told(found.problems) == ["jobs/caf\\xe9.lua: its name is not UTF-8"]


def test_doubtful_files_are_warned_of_and_still_run(tmp_path: Path) -> None:
    found = scanned(
        tmp_path,
        {"jobs/a.lua": "x = 1\n" + EVERY_SECOND, "jobs/b.lua": "function run() end\nrun()"},
    )

    assert list(found.jobs) == ["a", "b"]
    assert told(found.warnings) == [
        "jobs/a.lua:2: this settings block is not at the top of the file and has no effect",
        "jobs/b.lua:2: the file defines run and calls it; spyweb calls it too",
    ]
