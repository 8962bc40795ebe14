from __future__ import annotations

import re
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest

from spyweb.errors import Problem
from spyweb.incidents.policy import AlertPolicy
from spyweb.model import (
    After,
    At,
    Backoff,
    ChangeKind,
    Cron,
    Every,
    HookSigning,
    Isolation,
    JobHook,
    JobId,
    JobSpec,
    Misfire,
    MisfirePolicy,
    Never,
    On,
    Outcome,
    Overlap,
    PingAddresses,
    Retry,
    Start,
)
from spyweb.permissions.policy import USUAL
from spyweb.settings.load import load_settings
from spyweb.settings.sections import DaemonSettings
from spyweb.settings.tables import TomlTable, parse_table
from spyweb.specs.discover import Scan, scan
from spyweb.specs.origins import resolve_settings
from spyweb.specs.parse import HOOK, NO_SETTINGS, JobFile, JobPlace, job_id, parse_job, usable_defaults

PLACE = JobPlace(file="jobs/My Job.lua", folder="jobs/My Job", name="My Job")
SETTINGS = replace(
    NO_SETTINGS, daemon=DaemonSettings(data_dir=Path("/data"), timezone="Europe/Berlin", default_interval_ms=77_000)
)


def table(text: str, file: str, *path: str) -> TomlTable:
    parsed = parse_table(text, file)
    assert isinstance(parsed, TomlTable)
    return parsed.table(*path)


def draft(block: str = "", override: str = "", defaults: str = "") -> JobFile:
    return parse_job(
        table(block, PLACE.file),
        PLACE,
        override=table(f"[jobs.my_job]\n{override}", "config.toml", "jobs", "my_job"),
        settings=replace(SETTINGS, defaults=table(f"[defaults]\n{defaults}", "config.toml", "defaults")),
    )


def spec(block: str = "", override: str = "", defaults: str = "") -> JobSpec:
    found = draft(block, override, defaults)
    assert found.problems == []
    return found.spec


def problems(block: str = "", override: str = "", defaults: str = "") -> list[str]:
    return [str(problem) for problem in draft(block, override, defaults).problems]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("prices", "prices"),
        ("Hello World", "hello_world"),
        ("hello-world", "hello_world"),
        ("My  Job!", "my__job"),
        ("__a__b__", "a__b"),
        ("ÄRGER", "ärger"),
        ("価格", "価格"),
        ("İ", "i̇"),
        ("!!!", ""),
        ("_", ""),
        ("a", "a"),
        ("v1.2", "v1_2"),
    ],
)
def test_an_id_is_the_name_in_lower_case_with_underscores(name: str, expected: str) -> None:
    assert job_id(name) == expected


def test_a_file_without_settings_has_every_default() -> None:
    assert spec() == JobSpec(
        id=JobId("my_job"),
        name="My Job",
        path="jobs/My Job.lua",
        folder="jobs/My Job",
        schedule=Every(period_ms=77_000),
    )


def test_every_key_is_read() -> None:
    text = """
name = "Other name"
description = "what it does"
tags = ["a", "b"]
enabled = false
cron = "*/5  * * * *"
timezone = "Asia/Tokyo"
jitter = "5s"
start = "interval"
timeout = "20s"
cpu_limit = 2
memory_limit = "32MB"
isolation = "process"
overlap = "queue"
misfire = "all"
misfire_grace = "1h"
misfire_limit = 7
retries = 3
retry_delay = "1s"
retry_backoff = "linear"
retry_max_delay = "1m"
retry_jitter = false
after = ["one", { job = "Job Two", outcome = "failed" }]
on = [{ scope = "orders", key = "a*", events = ["deleted", "expired"], when = "is_big" }]
agent = "web-01"
on_hook_error = "skip"
drift = "1h"
drift_repair = true
labels = ["gpu", "EU"]
"""
    assert spec(text) == JobSpec(
        id=JobId("other_name"),
        name="Other name",
        path="jobs/My Job.lua",
        folder="jobs/My Job",
        description="what it does",
        tags=("a", "b"),
        enabled=False,
        schedule=Cron(expression="*/5 * * * *", timezone="Asia/Tokyo"),
        jitter_ms=5_000,
        start=Start.INTERVAL,
        timeout_ms=20_000,
        cpu_limit_ms=2_000,
        memory_limit=32 << 20,
        isolation=Isolation.PROCESS,
        overlap=Overlap.QUEUE,
        misfire=Misfire(policy=MisfirePolicy.ALL, grace_ms=3_600_000, limit=7),
        retry=Retry(retries=3, delay_ms=1_000, backoff=Backoff.LINEAR, max_delay_ms=60_000, jitter=False),
        after=(After(job=JobId("one")), After(job=JobId("job_two"), outcomes=frozenset({Outcome.FAILED}))),
        alerts=AlertPolicy(depends_on=("job:one",)),
        on=(
            On(
                namespace="scope:orders",
                key=b"a*",
                kinds=frozenset({ChangeKind.DELETED, ChangeKind.EXPIRED}),
                when="is_big",
            ),
        ),
        agent="web-01",
        drift_ms=3_600_000,
        drift_repair=True,
        labels=("eu", "gpu"),
    )


@pytest.mark.parametrize(
    ("block", "override", "defaults", "timeout_ms"),
    [
        ("", "", "", 300_000),
        ("", "", "timeout = 1", 1_000),
        ("timeout = 2", "", "timeout = 1", 2_000),
        ("timeout = 2", "timeout = 3", "timeout = 1", 3_000),
    ],
)
def test_the_job_s_section_beats_its_file_beats_the_defaults(
    block: str, override: str, defaults: str, timeout_ms: int
) -> None:
    assert spec(block, override, defaults).timeout_ms == timeout_ms


@pytest.mark.parametrize(
    ("block", "override", "defaults", "schedule"),
    [
        ('cron = "* * * * *"', "every = 5", "", Every(period_ms=5_000)),
        ("every = 5", "", 'cron = "* * * * *"', Every(period_ms=5_000)),
        ("", "", "every = 7", Every(period_ms=7_000)),
        ('every = "never"', "", "every = 7", Never()),
        ("after = 'x'", "", "every = 7", Never()),
        ("after = 'x'\nevery = 5", "", "", Every(period_ms=5_000)),
        ("after = []", "", "", Every(period_ms=77_000)),
        ("on = {}", "", "every = 7", Never()),
        ("on = [{ scope = 'x' }]\nevery = 5", "", "", Every(period_ms=5_000)),
        ("on = []", "", "", Every(period_ms=77_000)),
    ],
)
def test_a_schedule_hides_weaker_ones_of_any_kind(block: str, override: str, defaults: str, schedule: object) -> None:
    assert spec(block, override, defaults).schedule == schedule


@pytest.mark.parametrize(
    ("value", "moment"),
    [
        ("2026-12-24T18:00:00Z", "2026-12-24T18:00:00+00:00"),
        ("2026-12-24 18:00:00+01:00", "2026-12-24T17:00:00+00:00"),
        ("2026-12-24T18:00:00", "2026-12-24T17:00:00+00:00"),  # in the daemon's zone
        ('"2026-12-24T18:00"', "2026-12-24T17:00:00+00:00"),
        ('"2026-12-24T18:00:00Z"', "2026-12-24T18:00:00+00:00"),
    ],
)
def test_at_takes_a_date_with_an_offset_or_in_the_job_s_zone(value: str, moment: str) -> None:
    assert spec(f"at = {value}").schedule == At(at_ms=round(datetime.fromisoformat(moment).timestamp() * 1000))


def test_a_cron_without_a_zone_of_its_own_follows_the_daemon_s() -> None:
    assert spec('cron = "@daily"').schedule == Cron(expression="@daily", timezone="Europe/Berlin")


def test_grace_can_be_taken_back() -> None:
    assert spec('misfire_grace = "none"', "", "misfire_grace = 5").misfire.grace_ms is None


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        ('"any"', {Outcome.SUCCESS, Outcome.FAILED, Outcome.LOST, Outcome.STOPPED, Outcome.SKIPPED}),
        ('["failed", "lost"]', {Outcome.FAILED, Outcome.LOST}),
        ('"success"', {Outcome.SUCCESS}),
    ],
)
def test_after_may_wait_for_other_outcomes(outcome: str, expected: set[Outcome]) -> None:
    assert spec(f"after = {{ job = 'x', outcome = {outcome} }}").after[0].outcomes == expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("timeot = 5", 'timeot: unknown key; did you mean "timeout"?'),
        ("interval = 5", 'interval: unknown key; did you mean "every"?'),
        ("every = 5\ncron = '* * * * *'", "cron: a job has one schedule; this one has every and cron"),
        ('every = "5x"', "every: expected a number of seconds"),
        ("every = 0", "every: must be at least 10ms, not 0s"),
        ('cron = "61 * * * *"', "cron: bad minute '61'"),
        ('cron = "0 0 31 2 *"', "cron: .* is never due"),
        ('cron = "0 0 */8 * MON#5"', "cron: .* is never due"),
        ('at = "tomorrow"', "at: expected a moment such as 2026-12-24T18:00:00Z, not 'tomorrow'"),
        ('at = "2026-13-45T99:00"', "at: expected a moment such as"),
        ("at = 2026-12-24", "at: expected a moment such as"),
        ('at = "2026-12-24"', "at: expected a moment such as"),
        ("at = 5", "at: expected a moment such as"),
        ("at = 9999-12-31T23:59:59-05:00", "at: must lie in the years 1900 to 8999, not in 9999"),
        ('at = "0001-01-01T00:00:00+14:00"', "at: must lie in the years 1900 to 8999, not in 1"),
        ('timezone = "Mars"', "timezone: no time zone 'Mars'"),
        ("timeout = 0", "timeout: must be at least 1ms, not 0s"),
        ('memory_limit = "1KB"', "memory_limit: must be at least 1MB, not 1KB"),
        ("retries = -1", "retries: must be at least 0, not -1"),
        ('retry_backoff = "exponental"', 'retry_backoff: .* did you mean "exponential"?'),
        ("misfire_limit = 0", "misfire_limit: must be at least 1"),
        ('overlap = "skp"', 'overlap: .* did you mean "skip"?'),
        ("name = ''", "name: can't be blank"),
        ("name = '!!!'", "name: the name '!!!' holds no letter or digit"),
        ("after = 5", "after: expected a job's name"),
        ("after = '!'", "after: '!' is no job's name"),
        ("after = [[]]", r"after\[1\]: expected a job's name"),
        ("after = { outcome = 'any' }", "after.job: is required"),
        ("after = { job = 5 }", "after.job: expected a job's name"),
        ("after = { job = 'x', outcom = 'any' }", 'after.outcom: unknown key; did you mean "outcome"?'),
        ("after = { job = 'x', outcome = 'maybe' }", "after.outcome: expected an outcome"),
        ("after = { job = 'x', outcome = [[]] }", "after.outcome: expected an outcome"),
        ("after = { job = 'x', outcome = [] }", "after.outcome: can't be an empty list"),
        ("on = 'orders'", "on: expected { scope = "),
        ("on = [5]", r"on\[1\]: expected { scope = "),
        ("on = [{ scop = 'x' }]", r'on\[1\].scop: unknown key; did you mean "scope"?'),
        ("on = [{}, { scope = 5 }]", r"on\[2\].scope: expected text, not 5"),
        ("on = [{ scope = 'job:' }]", r"on\[1\].scope: 'job:' must go on with a name"),
        ("on = [{ events = ['updatd'] }]", r'on\[1\].events: expected an event: .* did you mean "updated"?'),
        ("on = { events = [[]] }", "on.events: expected an event: "),
        ("on = { when = 'not a name' }", "on.when: expected the name of a global Lua function, not 'not a name'"),
        ("on = { when = 'end' }", "on.when: expected the name of a global Lua function"),
        ("history = 0", "history: must be at least 1, not 0; a number of versions or a time"),
        ("history = 'soon'", "history: .*; a number of versions or a time like"),
        ("node = 'a b'", "node: 'a b' is no name of a node or label: expected letters"),
        ("node = 'a'\nlabels = ['gpu']", "labels: a job is for one node or for labels, not for both"),
        ("drift = 5", "drift: must be at least 10s, not 5s"),
        ("drift_repair = 'yes'", "drift_repair: expected"),
        ("on_hook_error = 'stop'", 'on_hook_error: expected "skip" or "fail"'),
        ("[retry]\ndelay = 5", 'retry: unknown key; did you mean "retries"?'),
    ],
)
def test_a_wrong_key_or_value_is_one_problem_with_its_line(text: str, reason: str) -> None:
    (problem,) = problems("# first line\n" + text)
    assert re.match(rf"jobs/My Job\.lua:[234]?: {reason}|jobs/My Job\.lua:\d+: {reason}", problem), problem


def test_a_wrong_value_in_the_job_s_section_names_config_toml() -> None:
    assert problems("", "timeout = 'x'\ntimeot = 5") == [
        "config.toml:2: jobs.my_job.timeout: expected a number of seconds, "
        'or text such as "1h30m" or "250ms", not \'x\'',
        'config.toml:3: jobs.my_job.timeot: unknown key; did you mean "timeout"?',
    ]


def test_a_name_cannot_be_set_from_outside() -> None:
    found = draft("", "name = 'x'")
    assert [str(problem) for problem in found.problems] == [
        "config.toml:2: jobs.my_job.name: a name can't be set here, only in the job's own file"
    ]
    assert found.spec.name == "My Job"


def test_wrong_defaults_are_told_once_and_the_right_ones_kept() -> None:
    text = "[defaults]\ntimeout = 5\nretries = 'x'\nnmae = 1\nname = 'x'\non = [{ scope = 'a' }, { scop = 'b' }]\n"
    defaults = table(text, "config.toml", "defaults")
    usable, found = usable_defaults(replace(SETTINGS, defaults=defaults))
    assert usable.values == {"timeout": 5}
    assert sorted(problem.line or 0 for problem in found) == [3, 4, 5, 6]


def test_a_problem_with_a_key_is_told_of_the_source_that_won() -> None:
    both = draft("after = 'a'", "after = 'b'")
    assert str(both.problem("no such job", "after")) == "config.toml:2: jobs.my_job.after: no such job"


def read_hook(value: object) -> tuple[tuple[JobHook, ...] | None, list[str]]:
    problems: list[Problem] = []
    source = TomlTable(values={"hook": value}, file="x")
    return HOOK.read(source, "hook", problems), [str(problem).removeprefix("x: hook") for problem in problems]


def test_a_hook_names_where_its_secret_is_found_and_how_it_signs() -> None:
    given = {"secret": "env:GITHUB_SECRET", "hmac": "github", "headers": ["X-GitHub-Event"]}
    hook = JobHook(secret="env:GITHUB_SECRET", signing=HookSigning.GITHUB, headers=("x-github-event",))
    assert read_hook(given) == ((hook,), [])
    assert read_hook({"secret": "credential:github"}) == ((JobHook(secret="credential:github"),), [])
    assert read_hook({}) == ((JobHook(),), [])


NOT_ITSELF = '.secret: expected the place of the secret, "env:NAME" or "credential:NAME", not the secret itself'


@pytest.mark.parametrize(
    ("given", "reasons"),
    [
        ("env:X", [""": expected { secret = "env:NAME", hmac = "github" }, not 'env:X'"""]),
        ({"secret": "hunter2"}, [NOT_ITSELF]),
        ({"secret": "env:"}, [NOT_ITSELF]),
        ({"secret": "env:A\n"}, [NOT_ITSELF]),
        ({"secret": "credential:../x"}, [NOT_ITSELF]),
        (
            {"secret": "env:A", "hmac": "gihub"},
            [""".hmac: expected "github", "stripe" or "spyweb", not 'gihub'; did you mean "github"?"""],
        ),
        ({"hmac": "github"}, [".hmac: signs with a secret: expected secret as well"]),
        (
            {"secret": 5, "secrets": "env:A", "headers": "x"},
            [
                ".secret: expected text, not 5",
                ".headers: expected a list of texts, not 'x'",
                '.secrets: unknown key; did you mean "secret"?',
            ],
        ),
        ({"headers": ["a b"]}, [".headers: 'a b' is no name of a header"]),
        ({"headers": ["a"] * 33}, [".headers: expected at most 32"]),
    ],
)
def test_all_that_makes_no_sense_is_refused_without_the_secret(given: object, reasons: list[str]) -> None:
    assert read_hook(given) == (None, reasons)


BACKUP = JobId("backup")
SCRIPT = '-- /// job\n-- every = "1d"\n{}-- ///\nreturn 1\n'


def scanned(root: Path, config: str, block: str = "") -> Scan:
    (root / "jobs").mkdir(exist_ok=True)
    (root / "jobs/backup.lua").write_text(SCRIPT.format(block and f"{block}\n"))
    (root / "config.toml").write_text(config)
    return scan(root, load_settings(root, environ={}, flags={}))


OF_BACKUP = "[jobs.backup]\nping_url = "
OWN = '-- ping_url = "https://hc/x"'


@pytest.mark.parametrize(
    ("config", "block", "found"),
    [
        (OF_BACKUP + '"https://hc/${KEY}"', "", PingAddresses(base="https://hc/${KEY}")),
        ('[defaults]\nping_url = "https://hc/{job}"', "", PingAddresses(base="https://hc/{job}")),
        ("", OWN, PingAddresses(base="https://hc/x", is_own=True)),
        (OF_BACKUP + '"https://hc/a"', OWN, PingAddresses(base="https://hc/a")),
        (OF_BACKUP + '{ success = "https://u", fail = "${D}" }', "", PingAddresses(success="https://u", fail="${D}")),
        ("", "", None),
    ],
)
def test_whose_word_it_is_decides_who_must_permit_it(
    tmp_path: Path, config: str, block: str, found: PingAddresses | None
) -> None:
    jobs = scanned(tmp_path, config, block)
    assert not jobs.problems
    assert jobs.jobs[BACKUP].spec.ping == found


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (OF_BACKUP + '"ftp://sekrit/"', "jobs.backup.ping_url: expected an address: "),
        (OF_BACKUP + '""', "jobs.backup.ping_url: can't be blank"),
        (OF_BACKUP + "5", "jobs.backup.ping_url: expected an address, or { start"),
        (OF_BACKUP + "{}", "jobs.backup.ping_url: expected an address, or { start"),
        (OF_BACKUP + '{ begin = "https://x/" }', "jobs.backup.ping_url.begin: unknown key"),
        (
            '[defaults]\nping_url = "https://hc/x"',
            "defaults.ping_url: one address for all jobs needs {job} in it, their id",
        ),
    ],
)
def test_what_is_wrong_is_said_once_and_without_the_address(tmp_path: Path, config: str, said: str) -> None:
    (problem,) = map(str, scanned(tmp_path, config).problems)
    assert problem.startswith(f"config.toml:2: {said}")
    assert "sekrit" not in problem


def test_a_variable_in_a_file_of_a_job_is_refused_without_its_name(tmp_path: Path) -> None:
    (problem,) = map(str, scanned(tmp_path, "", '-- ping_url = "https://hc/${SEKRIT}"').problems)
    said = "variables of the environment are for config.toml: there it may be [jobs.ID]"
    assert problem.startswith(f"jobs/backup.lua:3: ping_url: {said}")
    assert "sekrit" not in problem


def test_of_the_address_only_the_host_is_shown(tmp_path: Path) -> None:
    config = '[jobs.backup]\nping_url = { fail = "https://hc.example/sekrit" }\n'
    file = scanned(tmp_path, config).jobs[BACKUP]
    found = resolve_settings(file.spec, file.sources, USUAL)
    (shown,) = (each for each in found if each.key == "ping_url")
    assert shown.value == '{ fail = "https://hc.example/[hidden]" }'
    assert "sekrit" not in repr(file)
