"""The settings of checks: found, parsed, and wrong ones reported with file, line and key."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from spyweb.checks.settings import CheckKind, script_of
from spyweb.model import Every, Isolation, JobId, Pings
from spyweb.permissions.policy import USUAL
from spyweb.runs.live import code_of
from spyweb.settings.load import load_settings
from spyweb.specs.discover import Scan, scan
from spyweb.specs.origins import resolve_settings
from tests.fakes.command import spyweb
from tests.fakes.repository import read

SITE = 'check = "http"\nurl = "https://example.org/"\n'


def scanned(root: Path, **files: str) -> Scan:
    for name, text in {
        "jobs/site.toml": SITE,
        **{name.replace("__", "/"): text for name, text in files.items()},
    }.items():
        path = root / (name if name.endswith(".lua") else name.removesuffix(".toml") + ".toml")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return scan(root, load_settings(root, environ={}, flags={}))


def told(tmp_path: Path, text: str) -> list[str]:
    return [str(problem) for problem in scanned(tmp_path, jobs__site=text).problems]


def test_a_bare_file_is_a_check_with_the_script_of_its_kind(tmp_path: Path) -> None:
    text = f"""{SITE}every = "1m"\nexpect = ["status == 200"]\nconfirm = 2\ntimeout = "5s"\nmax_body_size = "2MB"
    headers = {{ accept = "text/html" }}\nmethod = "head"\n"""
    found = scanned(tmp_path, jobs__site=text)
    assert not [*found.problems, *found.warnings]
    (file,) = found.jobs.values()
    spec = file.spec
    assert (spec.id, spec.path, spec.folder, spec.check, spec.monitor) == (
        *("site", "jobs/site.toml", "jobs/site", "http"),
        None,
    )
    assert spec.schedule == Every(period_ms=60_000)
    assert spec.timeout_ms == 3 * 2 * 5_000 + 2_000 + 4_000 + 15_000
    assert msgspec.json.decode(spec.values) == {
        "url": "https://example.org/", "expect": ["status == 200"], "confirm": 2, "timeout": 5,
        "max_body_size": 2, "headers": {"accept": "text/html"}, "method": "HEAD",
    }  # fmt: skip
    assert (code_of(file, 1).chunk, code_of(file, 1).source) == script_of(CheckKind.HTTP)


def test_only_a_command_may_run_programs_and_needs_a_process_for_that(tmp_path: Path) -> None:
    config = '[permissions]\nexec = ["/bin/true"]\n'
    found = scanned(tmp_path, config=config, jobs__up='check = "command"\ncommand = ["/bin/true"]\n')
    specs = {job: file.spec for job, file in found.jobs.items()}
    assert {job: (spec.policy.may_exec, spec.isolation) for job, spec in specs.items()} == {
        "site": (False, Isolation.SHARED), "up": (True, Isolation.PROCESS),
    }  # fmt: skip


def test_a_list_of_jobs_has_checks_beside_monitors_and_config_toml_overrides_both(tmp_path: Path) -> None:
    jobs = """[[jobs]]\nname = "MX"\ncheck = "dns"\nhost = "example.org"\ntype = "MX"\n
    [[jobs]]\nname = "Page"\nurl = "https://a.b"\nselector = "li"\nfields = ["t"]\n"""
    config = """[defaults]\ntimeout = "1h"\nretries = 2\nvalues = { a = 1 }\n[values]\nb = 2
    [jobs.mx]\nhost = "example.com"\nexpect = ["#records > 1"]\n[jobs.backup]\nexpect = "ping"\nevery = "1h"\n"""
    found = scanned(tmp_path, jobs=jobs, config=config)
    assert not [*found.problems, *found.warnings]
    specs = {job: file.spec for job, file in found.jobs.items()}
    assert {job: spec.check for job, spec in specs.items()} == {
        "site": "http",
        "mx": "dns",
        "page": None,
        "backup": None,
    }
    assert isinstance(specs[JobId("backup")].schedule, Pings)
    mx = specs[JobId("mx")]
    assert (mx.folder, mx.retry.retries, mx.timeout_ms) == ("jobs/mx", 2, 35_000)
    assert msgspec.json.decode(mx.values) == {
        "host": "example.com", "type": "MX", "expect": ["#records > 1"], "confirm": 0, "timeout": 10,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        (
            'check = "htp"\nurl = "https://x"\n',
            "jobs/site.toml:1: check: expected {KINDS}, not 'htp'; did you mean \"http\"?",
        ),
        ("check = 5\n", "jobs/site.toml:1: check: expected {KINDS}, not 5"),
        ('check = "http"\n', "jobs/site.toml:1: check: needs the key url as well"),
        (SITE + 'evry = "1m"\n', 'jobs/site.toml:3: evry: unknown key; did you mean "every"?'),
        (SITE + "port = 5\n", "jobs/site.toml:3: port: unknown key"),
        (SITE + "confirm = 9\n", "jobs/site.toml:3: confirm: must be at most 5, not 9"),
        (SITE + "timeout = 90\n", "jobs/site.toml:3: timeout: must be at most 1m, not 1m30s"),
        (SITE + "values = { a = 1 }\n", 'jobs/site.toml:3: values: unknown key; did you mean "alerts"?'),
        (
            'check = "http"\nurl = "me:hunter2@example.org"\n',
            "jobs/site.toml:2: url: expected an address: https:// or http://, a host, and a port up to 65535 if any",
        ),
        ('check = "ping"\nhost = "https://me:hunter2@example.org"\n', "jobs/site.toml:2: host: {HOST}"),
        ('check = "tls"\nhost = "example.org:443"\n', "jobs/site.toml:2: host: {HOST}"),
        (SITE + "expect = 'status == 1'\n", "jobs/site.toml:3: expect: expected a list of texts, not 'status == 1'"),
        (SITE + "expect = ['true', 1]\n", "jobs/site.toml:3: expect: expected text, not 1"),
        (SITE + "expect = []\n", "jobs/site.toml:3: expect: expected 1 to 20 conditions, not 0"),
        (
            SITE + "expect = [\n  'statu < 5',\n  'x == 1',\n]\n",
            'jobs/site.toml:3: expect: statu < 5: unknown name statu; did you mean "status"?; also x == 1: '
            "unknown name x; there are status, latency, body, size, headers, json, ip, redirects, cert_days",
        ),
        (
            'check = "command"\ncommand = []\n',
            "jobs/site.toml:2: command: expected a command: a program and its arguments",
        ),
        ("check = \n", "jobs/site.toml:1: not valid TOML: invalid value"),
        ("\n", "jobs/site.toml: is empty"),
    ],
)
def test_a_wrong_setting_is_reported_with_its_place(tmp_path: Path, text: str, problems: str) -> None:
    kinds = '"http", "tcp", "tls", "dns", "ping", "command" or "feed"'
    host = "expected the name or address of a host alone, without https:// and without a port"
    assert told(tmp_path, text) == [problems.replace("{KINDS}", kinds).replace("{HOST}", host)]


@pytest.mark.parametrize("block", re.findall(r"```toml\n(.*?)```", read("docs/how-to/check-a-site.md"), re.DOTALL))
def test_each_check_of_the_how_to_is_right(tmp_path: Path, block: str) -> None:
    found = scanned(tmp_path, **{"jobs" if block.startswith("jobs") else "jobs__site": block})
    assert not [*found.problems, *found.warnings]


def test_a_check_has_no_lua_beside_it_and_config_toml_makes_none(tmp_path: Path) -> None:
    found = scanned(
        tmp_path,
        jobs__page__config=SITE + 'name = "p"\n',
        jobs__typo__config=SITE.replace("check", "chek") + 'selector = "x"\nfields = ["y"]\nname = "t"\n',
        **{"jobs__page__hooks.lua": "", "config": '[jobs.site]\ncheck = "tcp"'},
    )
    assert [str(problem) for problem in found.problems] == [
        "config.toml:2: jobs.site.check: a check can't be set here, only in the job's own file",
        "jobs/page/hooks.lua: a check has no Lua of its own; `spyweb check --show KIND` prints its script, to copy",
    ]
    assert 'jobs/typo/config.toml:1: chek: unknown key; did you mean "check"?' in map(str, found.warnings)


def test_a_bare_file_without_a_kind_is_no_job(tmp_path: Path) -> None:
    found = scanned(tmp_path, jobs__site='chek = "http"\n', jobs__data="x = 1\n")
    assert not found.jobs
    assert not found.problems
    assert [problem.file for problem in found.warnings] == ["jobs/data.toml", "jobs/site.toml"]
    assert 'a check says check = "http" or "tcp"' in found.warnings[0].reason


def test_each_setting_is_shown_with_its_place_and_without_secrets(tmp_path: Path) -> None:
    text = SITE + 'headers = { authorization = "Bearer hunter2" }\ntimeout = 5\n'
    found = scanned(tmp_path, jobs__site=text, config="[defaults]\ntimeout = 90\n[jobs.site]\nconfirm = 1\n")
    file = found.jobs[JobId("site")]
    shown = {each.key: (each.value, each.words) for each in resolve_settings(file.spec, file.sources, USUAL)}
    assert shown["timeout"] == ("5", "jobs/site.toml:4")
    assert shown["confirm"] == ("1", "config.toml:4, [jobs.site]")
    assert shown["check"] == ('"http"', "jobs/site.toml:1")
    assert "hunter2" not in str(shown)
    assert "selector" not in shown


@pytest.mark.parametrize("kind", list(CheckKind))
def test_the_script_of_a_check_can_be_printed_and_is_a_job(kind: CheckKind, tmp_path: Path) -> None:
    printed = spyweb("check", "--show", kind.value)
    assert printed.code == 0
    found = scanned(tmp_path, **{"jobs__copy.lua": printed.out})
    assert not [*found.problems, *found.warnings]
    assert found.jobs[JobId("copy")].spec.values
    assert spyweb("check", "--show", kind.value, "-o", "json").json["script"] == printed.out.rstrip("\n") + "\n"
