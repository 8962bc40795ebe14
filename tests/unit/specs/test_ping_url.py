"""`ping_url`, as files say it."""

from __future__ import annotations

from pathlib import Path

import pytest

from spyweb.model import JobId, PingAddresses
from spyweb.permissions.policy import USUAL
from spyweb.settings.load import load_settings
from spyweb.specs.discover import Scan, scan
from spyweb.specs.origins import resolve_settings

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
