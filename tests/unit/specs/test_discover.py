from __future__ import annotations

import os
from pathlib import Path

import pytest

from spyweb.model import Cron, Every, JobId, Overlap, Pings
from spyweb.settings.load import load_settings
from spyweb.specs.discover import Scan, find_cycles, scan

LUA = "print(1)"
MONITOR = 'name = "Watch"\nurl = "https://example.com"\nselector = "li"\nfields = ["t"]\n'
EVERY_SECOND = '-- /// job\n-- every = "1s"\n-- ///\n'


def project(root: Path, files: dict[str, str | bytes]) -> Path:
    (root / "jobs").mkdir(exist_ok=True)
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return root


def scan_of(root: Path) -> Scan:
    return scan(root, load_settings(root, environ={}, flags={}))


def scanned(root: Path, files: dict[str, str | bytes]) -> Scan:
    return scan_of(project(root, files))


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


def test_the_job_s_section_is_found_by_id_or_by_name_which_the_block_may_give(tmp_path: Path) -> None:
    config = '[jobs.price_watch]\ntimeout = 1\n[jobs."My Job"]\ntimeout = 2\n[defaults]\nretries = 3'
    named = '-- /// job\n-- name = "Price Watch"\n-- ///'
    found = scanned(tmp_path, {"config.toml": config, "jobs/a.lua": named, "jobs/My Job.lua": LUA})
    specs = [file.spec for file in found.jobs.values()]
    assert [(spec.id, spec.folder, spec.timeout_ms, spec.retry.retries) for spec in specs] == [
        ("my_job", "jobs/My Job", 2_000, 3),
        ("price_watch", "jobs/a", 1_000, 3),
    ]


def after(job: str) -> str:
    return f'-- /// job\n-- after = "{job}"\n-- ///'


IN_A_CIRCLE = "2: after: these jobs wait for each other: a after b after a"


@pytest.mark.parametrize(
    ("files", "jobs", "broken", "problem"),
    [
        ({"config.toml": '[jobs.a]\n[jobs."A!"]'}, "a", "", "config.toml:2: jobs.A!: a second section for the job a"),
        (
            {"jobs/a.lua": "-- /// job\n-- every = 5\n-- evry = 6\n-- ///"},
            "",
            "a",
            'jobs/a.lua:3: evry: unknown key; did you mean "every"?',
        ),
        (
            {"jobs/Hello World.lua": LUA, "jobs/hello-world.lua": LUA},
            "a",
            "hello_world",
            'jobs/hello-world.lua: gives the id "hello_world", and so does jobs/Hello World.lua; ids must differ',
        ),
        (
            {"jobs/b/init.lua": LUA, "jobs/b/config.toml": MONITOR},
            "a",
            "",
            "jobs/b/: holds both init.lua and config.toml; a job is one or the other",
        ),
        (
            {"jobs/a.lua": after("pirces"), "jobs/prices.lua": LUA},
            "prices",
            "a",
            'jobs/a.lua:2: after: no job "pirces"; did you mean "prices"?',
        ),
        (
            {"jobs/a.lua": after("b"), "jobs/b.lua": after("A"), "jobs/c.lua": after("a")},
            "c",
            "a b",
            f"jobs/a.lua:{IN_A_CIRCLE}\njobs/b.lua:{IN_A_CIRCLE}",
        ),
        ({"jobs/a.lua": b"\x1bLua\x54\x00"}, "", "a", "jobs/a.lua:1: is Lua bytecode; only source text is run"),
        ({"jobs/a.lua": b"\xff\xfep\x00"}, "", "a", "jobs/a.lua:1: is UTF-16 text; save it as UTF-8"),
        ({"jobs/a.lua": b"x" * (1 << 20) + b"y"}, "", "a", "jobs/a.lua: is larger than 1MB"),
    ],
)
def test_what_is_wrong_is_told_with_its_place_and_hinders_no_other_job(
    tmp_path: Path, files: dict[str, str | bytes], jobs: str, broken: str, problem: str
) -> None:
    found = scanned(tmp_path, {"jobs/a.lua": LUA, "jobs/good.lua": LUA, **files})
    assert "\n".join(told(found.problems)) == problem
    assert set(found.jobs) == {*jobs.split(), "good"}
    assert set(found.broken) == {*broken.split()}


def test_sections_for_no_job_are_a_warning_with_the_nearest_name(tmp_path: Path) -> None:
    found = scanned(tmp_path, {"config.toml": "[jobs.pirces]\ntimeout = 1", "jobs/prices.lua": LUA})
    assert told(found.warnings) == ['config.toml:1: jobs.pirces: no job "pirces"; did you mean "prices"?']


def test_the_lua_of_what_is_broken_is_at_hand_for_whoever_looks_for_more(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {
        "jobs/bad.lua": "-- /// job\n-- evry = 1\n-- ///",
        "jobs/torn.lua": "-- /// job\n-- every =\n-- ///",
        "jobs/good.lua": LUA,
        "jobs/twice.lua": LUA,
        "jobs/Twice/init.lua": LUA,
        "jobs/watch/config.toml": MONITOR.replace("url", "ulr"),
        "jobs/watch/hooks.lua": LUA,
    }
    found = scanned(tmp_path, files)
    assert {path for path, _ in found.broken_lua} == {
        *("jobs/bad.lua", "jobs/torn.lua", "jobs/twice.lua", "jobs/Twice/init.lua", "jobs/watch/hooks.lua")
    }


def test_a_broken_block_still_tells_which_job_it_belongs_to(tmp_path: Path) -> None:
    found = scanned(tmp_path, {"jobs/a.lua": '-- /// job\n-- name = "Price Watch"\n-- every = = 5\n-- ///'})
    assert list(found.broken) == ["price_watch"]


def test_a_name_without_letters_gives_no_id(tmp_path: Path) -> None:
    found = scanned(tmp_path, {"jobs/!!!.lua": LUA, "jobs/---.lua": LUA})
    assert not found.jobs
    assert [problem.file for problem in found.problems] == ["jobs/!!!.lua", "jobs/---.lua"]
    assert all("holds no letter or digit" in problem.reason for problem in found.problems)


def test_wrong_defaults_are_told_once_and_stop_no_job(tmp_path: Path) -> None:
    found = scanned(tmp_path, {"config.toml": "[defaults]\ntimeout = 'x'", "jobs/a.lua": LUA, "jobs/b.lua": LUA})
    assert len(found.problems) == 1
    assert list(found.jobs) == ["a", "b"]


def test_leftovers_and_other_files_are_ignored(tmp_path: Path) -> None:
    names = [".hidden.lua", ".#a.lua", "a.lua~", "a.lua.swp", ".a.lua.swp", "README.md", "#a.lua#"]
    found = scanned(tmp_path, {**{f"jobs/{name}": LUA for name in names}, "jobs/a.lua": LUA, "jobs/a/data.csv": ""})
    assert list(found.jobs) == ["a"]
    assert not found.problems
    assert not found.warnings


def test_a_missing_jobs_folder_or_a_file_in_its_place_is_one_clear_line(tmp_path: Path) -> None:
    (problem,) = told(scan_of(tmp_path).problems)
    assert problem.startswith("jobs/: there is no such folder in ")
    assert "drop a NAME.lua file" in problem
    (tmp_path / "jobs").write_text("")
    assert told(scan_of(tmp_path).problems) == ["jobs/: can't be read: Not a directory"]


def test_a_job_after_a_broken_one_waits_for_its_repair(tmp_path: Path) -> None:
    found = scanned(tmp_path, {"jobs/a.lua": '-- /// job\n-- after = "b"\n-- ///', "jobs/b.lua": "-- /// job\n"})
    assert list(found.jobs) == ["a"]


def test_a_byte_order_mark_and_a_shebang_do_not_reach_lua(tmp_path: Path) -> None:
    found = scanned(tmp_path, {"jobs/a.lua": b"\xef\xbb\xbf#!/usr/bin/lua\n" + EVERY_SECOND.encode()})
    (file,) = found.jobs.values()
    assert file.lua[0][1].startswith(b"--#!/usr/bin/lua\n-- /// job")
    assert file.spec.schedule == Every(period_ms=1_000)


def test_the_digest_changes_with_the_source_alone(tmp_path: Path) -> None:
    first = scanned(tmp_path, {"jobs/a.lua": "x = 1"}).jobs
    again = scanned(tmp_path, {"jobs/a.lua": "x = 1", "config.toml": "[defaults]\nretries = 1"}).jobs
    edited = scanned(tmp_path, {"jobs/a.lua": "x = 2"}).jobs

    assert [file.digest for file in first.values()] == [file.digest for file in again.values()]
    assert first != again
    assert [file.digest for file in first.values()] != [file.digest for file in edited.values()]


def test_links_inside_the_project_are_followed_and_links_out_of_it_refused(tmp_path: Path) -> None:
    outside = tmp_path / "outside.lua"
    outside.write_text(LUA)
    (tmp_path / "project").mkdir()
    root = project(tmp_path / "project", {"shared/x.lua": LUA})
    (root / "jobs/inside.lua").symlink_to("../shared/x.lua")
    (root / "jobs/out.lua").symlink_to(outside)
    (root / "jobs/out").symlink_to(tmp_path)
    (root / "jobs/folder").mkdir()
    (root / "jobs/folder/init.lua").symlink_to(outside)
    found = scan_of(root)

    assert list(found.jobs) == ["inside"]
    assert told(found.problems) == [
        "jobs/folder: can't be read: a link that leaves the project",
        "jobs/out: can't be read: a link that leaves the project",
        "jobs/out.lua: can't be read: a link that leaves the project",
    ]


def test_what_cannot_be_read_is_one_clear_line(tmp_path: Path) -> None:
    root = project(tmp_path, {"jobs/fine.lua": LUA})
    (root / "jobs/dangling.lua").symlink_to("nowhere.lua")
    (root / "jobs/loop.lua").symlink_to("loop.lua")
    os.mkfifo(root / "jobs/pipe.lua")
    found = scan_of(root)

    assert list(found.jobs) == ["fine"]
    assert told(found.problems) == [
        "jobs/dangling.lua: can't be read: No such file or directory",
        "jobs/loop.lua: can't be read: Too many levels of symbolic links",
        "jobs/pipe.lua: can't be read: not a regular file",
    ]


def test_a_file_name_that_is_not_utf8_is_refused_and_can_be_shown(tmp_path: Path) -> None:
    root = project(tmp_path, {})
    Path(os.fsdecode(os.fsencode(root) + b"/jobs/caf\xe9.lua")).write_text(LUA)
    assert told(scan_of(root).problems) == ["jobs/caf\\xe9.lua: its name is not UTF-8"]


def test_doubts_about_lua_are_shown_beside_settings_that_are_not_toml(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {
        "jobs/a.lua": "-- /// job\n-- every =\n-- ///\nlgo(1)",
        "jobs/b.lua": "--- /// job\n-- every = 1\n-- ///\nlgo(1)",
        "jobs/w/config.toml": "name =",
        "jobs/w/hooks.lua": "lgo(1)",
    }
    found = scanned(tmp_path, files)
    assert sorted(told(found.problems)) == [
        "jobs/a.lua:2: not valid TOML: invalid value",
        'jobs/b.lua:1: this begins no block of settings; expected "-- /// job"',
        "jobs/w/config.toml:1: not valid TOML: invalid value",
    ]
    assert sorted(told(found.warnings)) == [
        "jobs/a.lua:4: undefined name lgo",
        "jobs/b.lua:4: undefined name lgo",
        "jobs/w/hooks.lua:1: undefined name lgo",
    ]


def test_a_condition_that_the_file_does_not_define_is_warned_of(tmp_path: Path) -> None:
    block = (
        "-- /// job\n-- on = [{ when = 'is_big' }, { scope = 'a', when = 'is_big' }, { when = 'is_late' }]\n-- ///\n"
    )
    found = scanned(
        tmp_path,
        {
            "jobs/a.lua": block + "function is_late(event) end\nlog(1)\n",
            "jobs/b.lua": block + "is_big, is_late = print, print\n",
            "jobs/c.lua": LUA,
            "config.toml": "[jobs.c]\non = [{ when = 'is_new' }]\n",
        },
    )
    assert list(found.jobs) == ["a", "b", "c"]
    assert told(found.warnings) == [
        "jobs/a.lua:2: on: when: there is no function is_big in jobs/a.lua",
        "config.toml:2: jobs.c.on: when: there is no function is_new in jobs/c.lua",
    ]


@pytest.mark.parametrize("content", ["", "\n", " \t\r\n ", "\ufeff"])
@pytest.mark.parametrize("name", ["jobs/a.lua", "jobs/a/init.lua", "jobs/a/config.toml", "jobs/a/hooks.lua"])
def test_a_file_that_is_empty_is_a_moment_of_a_save_and_no_job(tmp_path: Path, name: str, content: str) -> None:
    is_hook = name.endswith("hooks.lua")
    found = scanned(tmp_path, {**({"jobs/a/config.toml": MONITOR} if is_hook else {}), name: content})

    assert not found.jobs
    assert told(found.problems) == [f"{name}: is empty"]
    assert list(found.broken) == ["watch" if is_hook else "a"]
    assert list(found.unsure) == ["jobs/a/config.toml" if is_hook else name]


def test_a_monitor_has_its_lua_files_in_their_order(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {
        "jobs/w/config.toml": MONITOR,
        "jobs/w/defer.lua": "x = 2",
        "jobs/w/hooks.lua": "x = 1",
        "jobs/w/tests.lua": "this is not loaded",
    }
    (file,) = scanned(tmp_path, files).jobs.values()
    assert (file.spec.id, file.spec.path, file.spec.folder) == ("watch", "jobs/w/config.toml", "jobs/w")
    assert file.lua == (("jobs/w/hooks.lua", b"x = 1"), ("jobs/w/defer.lua", b"x = 2"))
    assert file.has_hooks


def test_the_digest_of_a_monitor_is_of_all_its_lua_and_not_of_its_settings(tmp_path: Path) -> None:
    def digest(files: dict[str, str | bytes]) -> str:
        (file,) = scanned(tmp_path, files).jobs.values()
        return file.digest

    first = digest({"jobs/w/config.toml": MONITOR, "jobs/w/hooks.lua": "x = 1"})
    assert digest({"jobs/w/config.toml": MONITOR + "interval = 5"}) == first
    more = digest({"jobs/w/defer.lua": "x = 2"})
    assert len({first, more, digest({"jobs/w/defer.lua": "x = 3"})}) == 3


def test_the_jobs_of_one_file_live_beside_those_of_the_folder(tmp_path: Path) -> None:
    listed = "".join(f"[[jobs]]\n{MONITOR.replace('Watch', name)}" for name in ("Job One", "Two"))
    found = scanned(tmp_path, {"jobs.toml": listed, "jobs/a.lua": LUA, "config.toml": "[jobs.job_one]\ninterval = 7"})

    assert list(found.jobs) == ["a", "job_one", "two"]
    one = found.jobs[JobId("job_one")].spec
    assert (one.path, one.folder, one.schedule) == ("jobs.toml", "jobs/job_one", Every(period_ms=7_000))
    assert not [*found.problems, *found.warnings]


def test_each_problem_in_jobs_toml_has_the_line_of_its_job(tmp_path: Path) -> None:
    listed = f'[[jobs]]\n{MONITOR}workers = 0\n[jobs.proxy]\nurls = ["x"]\n[[jobs]]\nname = "B"\nurl = "y"\n'
    found = scanned(tmp_path, {"jobs.toml": listed})
    assert [(problem.line, problem.key) for problem in found.problems] == [
        (6, "jobs[1].workers"),
        (8, "jobs[1].proxy.urls"),
        (9, "jobs[2].selector"),
        (9, "jobs[2].fields"),
        (11, "jobs[2].url"),
    ]
    assert found.broken.keys() == {"watch", "b"}
    assert not found.unsure


def test_jobs_toml_that_is_not_toml_is_one_problem_with_its_line(tmp_path: Path) -> None:
    found = scanned(tmp_path, {"jobs.toml": f"[[jobs]]\n{MONITOR}interval = = 5\n"})
    (problem,) = found.problems
    assert (problem.file, problem.line) == ("jobs.toml", 6)
    assert found.unsure == {"jobs.toml": [problem]}


@pytest.mark.parametrize("text", ["[jobs]\nname = 'x'", "jobs = 5", "jobs = ['x']", "", "  \n"])
def test_jobs_toml_that_holds_no_list_of_tables_may_be_anybodys(tmp_path: Path, text: str) -> None:
    found = scanned(tmp_path, {"jobs.toml": text})
    assert not found.jobs
    assert [problem.file for problem in found.problems] == ["jobs.toml"]
    assert list(found.unsure) == ["jobs.toml"]


def test_a_job_without_a_name_in_jobs_toml_may_be_any_of_them(tmp_path: Path) -> None:
    found = scanned(tmp_path, {"jobs.toml": f"[[jobs]]\n{MONITOR}[[jobs]]\nurl = 'https://a.b'\n"})
    assert list(found.jobs) == ["watch"]
    assert "jobs[2].name: is required" in " ".join(told(found.problems))
    assert list(found.unsure) == ["jobs.toml"]


def test_an_unknown_key_of_a_monitor_is_a_warning_and_in_its_section_a_problem(tmp_path: Path) -> None:
    found = scanned(tmp_path, {"jobs/w/config.toml": MONITOR + "intervall = 5\n[webhook]\nurll = 'x'\nenabled = false"})
    assert list(found.jobs) == ["watch"]
    assert told(found.warnings) == [
        'jobs/w/config.toml:7: webhook.urll: unknown key; did you mean "url"?',
        'jobs/w/config.toml:5: intervall: unknown key; did you mean "interval"?',
    ]
    found = scanned(tmp_path, {"jobs/w/config.toml": MONITOR, "config.toml": "[jobs.watch]\nworkerz = 5"})
    assert told(found.problems) == ['config.toml:2: jobs.watch.workerz: unknown key; did you mean "workers"?']


def test_record_is_refused_in_a_monitor_and_that_of_the_defaults_does_not_count(tmp_path: Path) -> None:
    own, config = MONITOR + "record = 'always'", "[jobs.watch]\nrecord = 'never'"
    reason = "only what scripts do is recorded, not what monitors do"
    assert told(scanned(tmp_path, {"jobs/w/config.toml": own, "config.toml": config}).problems) == [
        f"config.toml:2: jobs.watch.record: {reason}",
        f"jobs/w/config.toml:5: record: {reason}",
    ]
    config = "[defaults]\nrecord = 'always'"
    assert not scanned(tmp_path, {"jobs/w/config.toml": MONITOR, "config.toml": config}).problems


def test_settings_from_outside_count_for_monitors_too(tmp_path: Path) -> None:
    config = (
        "[defaults]\nretries = 2\nevery = '1h'\n"
        "[jobs.watch]\nurls = ['https://x.y']\nworkers = 3\nproxy.enabled = false"
    )
    own = MONITOR + "[proxy]\nurls = ['http://p:1']\n"
    (file,) = scanned(tmp_path, {"jobs/w/config.toml": own, "config.toml": config}).jobs.values()

    assert file.spec.monitor
    assert (file.spec.monitor.urls, file.spec.monitor.is_queue) == (("https://x.y",), True)
    assert (file.spec.monitor.workers, file.spec.monitor.proxies) == (3, None)
    assert (file.spec.retry.retries, file.spec.schedule) == (2, Every(period_ms=3_600_000))


def test_two_jobs_of_one_id_are_told_with_the_line_of_the_second(tmp_path: Path) -> None:
    listed = f"[[jobs]]\n{MONITOR}[[jobs]]\n{MONITOR.replace('Watch', 'WATCH')}"
    found = scanned(tmp_path, {"jobs.toml": listed})
    assert told(found.problems) == [
        'jobs.toml:7: jobs[2].name: gives the id "watch", and so does another job of this file; ids must differ'
    ]
    found = scanned(tmp_path, {"jobs.toml": f"[[jobs]]\n{MONITOR}", "jobs/watch.lua": LUA})
    assert told(found.problems) == [
        'jobs.toml:2: jobs[1].name: gives the id "watch", and so does jobs/watch.lua; ids must differ'
    ]
    assert not found.jobs


def test_a_thousand_problems_in_one_file_are_told_quickly(tmp_path: Path) -> None:
    listed = "".join(f"[[jobs]]\n{MONITOR.replace('Watch', f'Job {number}')}wrkers = 1\n" for number in range(2_000))
    found = scanned(tmp_path, {"jobs.toml": listed})
    assert [warning.line for warning in found.warnings[:2]] == [6, 12]
    assert (len(found.jobs), len(found.warnings)) == (2_000, 2_000)


def test_what_is_doubtful_is_told_of_its_job_of_the_server_and_of_the_project(tmp_path: Path) -> None:
    found = scanned(
        tmp_path,
        {
            "jobs/a.lua": "htp_get('x') require('lib') shared()",
            "jobs/b.lua": LUA,
            "lib.lua": "function shared() end",
            "jobs/w/config.toml": MONITOR + "interva = 5\n",
            "jobs/w/hooks.lua": "function before_fech(r) return r end",
            "jobs/old/main.lua": LUA,
            "server/init.lua": "function get:page()\n  return cdp.launch()\nend",
        },
    )
    assert not found.problems
    assert sorted(told(found.warnings)) == [
        'jobs/a.lua:1: undefined name htp_get; did you mean "http_get"?',
        "jobs/old/: is no job: holds main.lua; expected init.lua, or jobs/NAME.lua",
        'jobs/w/config.toml:5: interva: unknown key; did you mean "interval"?',
        'jobs/w/hooks.lua:1: no hook is named before_fech; did you mean "before_fetch"?',
        "server/init.lua:2: cdp.launch is not part of this version",
    ]
    assert all(warning.is_warning for warning in found.warnings)
    assert {job: len(file.warnings) for job, file in found.jobs.items()} == {"a": 1, "b": 0, "watch": 2}


PINGED, OTHER = '[jobs.backup]\nexpect = "ping"\n', "[jobs.other]\n"
EXPECTS = "a job that expects pings"


@pytest.mark.parametrize("path", ["config.toml", "jobs.toml", "jobs/backup/config.toml"])
def test_a_job_that_expects_pings_needs_no_file_of_its_own(tmp_path: Path, path: str) -> None:
    head = {"config.toml": "[jobs.backup]\n", "jobs.toml": '[[jobs]]\nname = "backup"\n'}.get(path, 'name = "backup"\n')
    text = head + 'expect = "ping"\nevery = "1d"\ngrace = "30m"\n'
    found = scanned(tmp_path, {"jobs/other.lua": EVERY_SECOND, path: text})
    assert told(found.problems) == told(found.warnings) == []
    file = found.jobs[JobId("backup")]
    spec = file.spec
    assert (spec.path, spec.folder, spec.name, file.lua) == (path, "jobs/backup", "backup", ())
    assert spec.schedule == Pings(schedule=Every(period_ms=86_400_000), grace_ms=1_800_000)
    assert (spec.timeout_ms, spec.monitor) == (3_600_000, None)


def test_what_defaults_say_of_jobs_that_run_here_does_not_count(tmp_path: Path) -> None:
    defaults = '[defaults]\nretries = 3\noverlap = "queue"\nevery = "5s"\njitter = "1m"\ndrift = "1h"\n'
    config = defaults + PINGED + 'cron = "0 3 * * *"\ntimezone = "Europe/Berlin"\n'
    spec = scanned(tmp_path, {"jobs/other.lua": EVERY_SECOND, "config.toml": config}).jobs[JobId("backup")].spec
    assert (spec.retry.retries, spec.overlap, spec.jitter_ms, spec.drift_ms) == (0, Overlap.ALLOW, 0, None)
    cron = Cron(expression="0 3 * * *", timezone="Europe/Berlin")
    assert spec.schedule == Pings(schedule=cron, grace_ms=3_600_000)


def test_the_grace_is_an_hour_or_the_period_where_that_is_shorter(tmp_path: Path) -> None:
    config = '[jobs.a]\nexpect = "ping"\nevery = "5m"\n[jobs.b]\nexpect = "ping"\nevery = "2h"\n'
    jobs = scanned(tmp_path, {"jobs/other.lua": EVERY_SECOND, "config.toml": config}).jobs
    schedules = [jobs[JobId(name)].spec.schedule for name in "ab"]
    assert [each.grace_ms for each in schedules if isinstance(each, Pings)] == [300_000, 3_600_000]


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (PINGED, f"2: jobs.backup.expect: {EXPECTS} needs every or cron: when they come"),
        (PINGED + 'every = "never"', f"2: jobs.backup.expect: {EXPECTS} needs every or cron: when they come"),
        (PINGED + "every = 9\nretries = 3", f"4: jobs.backup.retries: {EXPECTS} runs elsewhere: this has no meaning"),
        (OTHER + 'expect = "ping"\nevery = 9', f"2: jobs.other.expect: {EXPECTS} runs elsewhere: here it has no file"),
        (OTHER + 'grace = "1m"', '2: jobs.other.grace: it is of jobs that expect pings: expect = "ping"'),
        ('[defaults]\nexpect = "ping"', "2: defaults.expect: each job says itself what it expects"),
        ('[jobs.backup]\nexpect = "pong"', "2: jobs.backup.expect: expected \"ping\", not 'pong'"),
    ],
)
def test_what_is_wrong_with_a_job_that_expects_pings_is_said(tmp_path: Path, config: str, said: str) -> None:
    found = scanned(tmp_path, {"jobs/other.lua": EVERY_SECOND, "config.toml": config + "\n"})
    assert any(each.startswith(f"config.toml:{said}") for each in told(found.problems))


def test_a_project_of_jobs_that_run_elsewhere_alone_needs_no_folder_for_files(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(PINGED + 'every = "1d"\n')
    found = scan_of(tmp_path)
    assert (list(found.jobs), told(found.problems)) == ([JobId("backup")], [])


def follows(**names: str) -> dict[JobId, list[JobId]]:
    return {JobId(job): [JobId(name) for name in followed.split()] for job, followed in names.items()}


@pytest.mark.parametrize(
    ("links", "cycle"),
    [
        ({"a": "a"}, ["a"]),
        ({"a": "b", "b": "a"}, ["a", "b"]),
        ({"x": "a", "a": "b", "b": "c", "c": "a"}, ["a", "b", "c"]),
        ({"a": "x b", "b": "a"}, ["a", "b"]),
    ],
)
def test_a_cycle_is_told_in_order(links: dict[str, str], cycle: list[str]) -> None:
    assert find_cycles(follows(**links)) == [cycle]


def test_a_chain_of_thousands_does_not_exhaust_the_stack() -> None:
    links = {JobId(f"j{n}"): [JobId(f"j{n + 1}")] for n in range(5_000)}
    assert find_cycles(links) == []
    links[JobId("j5000")] = [JobId("j0")]
    assert len(find_cycles(links)[0]) == 5_001


def test_jobs_that_all_name_each_other_are_told_in_few_cycles() -> None:
    names = [JobId(f"j{n}") for n in range(40)]
    cycles = find_cycles(dict.fromkeys(names, names))
    assert len(cycles) <= len(names)
    assert {name for cycle in cycles for name in cycle} == set(names)
