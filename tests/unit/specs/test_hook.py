from __future__ import annotations

from pathlib import Path

import pytest

from spyweb.errors import Problem
from spyweb.model import HookSigning, JobHook, JobId, PingAddresses
from spyweb.permissions.policy import USUAL
from spyweb.settings.load import load_settings
from spyweb.settings.reading import SettingsSource
from spyweb.specs.discover import Scan, scan
from spyweb.specs.hook import HOOK
from spyweb.specs.origins import resolve_settings


def read_hook(value: object) -> tuple[tuple[JobHook, ...] | None, list[str]]:
    problems: list[Problem] = []
    source = SettingsSource({"hook": value}, lambda reason, *keys: Problem("x", None, ".".join(keys), reason))
    return HOOK.read(source, "hook", problems), [str(problem).removeprefix("x: hook") for problem in problems]


def test_a_hook_names_where_its_secret_is_found_and_how_it_signs() -> None:
    given = {"secret": "env:GITHUB_SECRET", "hmac": "github", "headers": ["X-GitHub-Event"]}
    hook = JobHook(secret="env:GITHUB_SECRET", signing=HookSigning.GITHUB, headers=("x-github-event",))
    assert read_hook(given) == ((hook,), [])
    assert read_hook({"secret": "credential:github"}) == ((JobHook(secret="credential:github"),), [])
    assert read_hook({}) == ((JobHook(),), [])


NOT_ITSELF = '.secret: expected where it is found, "env:NAME" or "credential:NAME", not the secret itself'


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


@pytest.mark.parametrize(
    ("config", "block", "found"),
    [
        ('[jobs.backup]\nping_url = "https://hc/${KEY}"', "", PingAddresses(base="https://hc/${KEY}")),
        ('[defaults]\nping_url = "https://hc/{job}"', "", PingAddresses(base="https://hc/{job}")),
        ("", '-- ping_url = "https://hc/x"', PingAddresses(base="https://hc/x", is_own=True)),
        (
            '[jobs.backup]\nping_url = "https://hc/a"',
            '-- ping_url = "https://hc/x"',
            PingAddresses(base="https://hc/a"),
        ),
        (
            '[jobs.backup]\nping_url = { success = "https://kuma/up", fail = "${DOWN}" }',
            "",
            PingAddresses(success="https://kuma/up", fail="${DOWN}"),
        ),
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
    ("config", "block", "said"),
    [
        (
            '[jobs.backup]\nping_url = "ftp://sekrit/"',
            "",
            "config.toml:2: jobs.backup.ping_url: expected an address that",
        ),
        ('[jobs.backup]\nping_url = ""', "", "config.toml:2: jobs.backup.ping_url: can't be blank"),
        ("[jobs.backup]\nping_url = 5", "", "config.toml:2: jobs.backup.ping_url: expected an address, or { start"),
        ("[jobs.backup]\nping_url = {}", "", "config.toml:2: jobs.backup.ping_url: expected an address, or { start"),
        (
            '[jobs.backup]\nping_url = { begin = "https://x/" }',
            "",
            "config.toml:2: jobs.backup.ping_url.begin: unknown key",
        ),
        (
            '[defaults]\nping_url = "https://hc/x"',
            "",
            "config.toml:2: defaults.ping_url: one address for all jobs needs {job} in it, their id",
        ),
        (
            "",
            '-- ping_url = "https://hc/${SEKRIT}"',
            "jobs/backup.lua:3: ping_url: variables of the environment are for config.toml: there it may be [jobs.ID]",
        ),
    ],
)
def test_what_is_wrong_is_said_once_and_without_the_address(tmp_path: Path, config: str, block: str, said: str) -> None:
    problems = [str(problem) for problem in scanned(tmp_path, config, block).problems]
    assert len(problems) == 1
    assert problems[0].startswith(said)
    assert "sekrit" not in problems[0]


def test_of_the_address_only_the_host_is_shown(tmp_path: Path) -> None:
    config = '[jobs.backup]\nping_url = { fail = "https://hc.example/sekrit" }\n'
    file = scanned(tmp_path, config).jobs[BACKUP]
    found = resolve_settings(BACKUP, False, file.sources, USUAL)
    (shown,) = (each for each in found if each.key == "ping_url")
    assert shown.value == '{ fail = "https://hc.example/[hidden]" }'
    assert "sekrit" not in repr(file)
