"""Each entry of `exec` in the pages permits what it says: no variable that a job sets makes another command of it."""

from __future__ import annotations

import re
import tomllib

import pytest

from spyweb.errors import Problem
from spyweb.permissions.policy import ExecRule, Grants, Policy
from spyweb.settings.permissions import take_grants
from spyweb.settings.reading import Reading
from spyweb.settings.tables import TomlTable
from tests.fakes.repository import ROOT

WRITTEN = re.compile(r"^[#\s]*(exec = \[.+\])\s*(?:#.*)?$", re.MULTILINE)
DECISIVE = (
    *("LD_PRELOAD", "PATH", "BASH_ENV", "ENV", "PYTHONPATH", "NODE_OPTIONS", "PERL5OPT", "GIT_SSH_COMMAND"),
    *("GIT_CONFIG_COUNT", "TAR_OPTIONS", "OPENSSL_CONF", "DBUS_SYSTEM_BUS_ADDRESS"),
)


def entries() -> list[ExecRule]:
    pages = [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", ROOT / "spyweb/cli/template/config.toml"]
    written = dict.fromkeys(text for page in pages for text in WRITTEN.findall(page.read_text()))
    problems: list[Problem] = []
    tables = [TomlTable(values=tomllib.loads(text)) for text in written]
    grants = [take_grants(Reading([table], problems), Grants()) for table in tables]
    assert not problems
    return [rule for granted in grants for rule in granted.exec or ()]


def test_the_pages_show_entries_of_each_kind() -> None:
    found = entries()
    assert len(found) >= 4
    assert {len(rule.words) > 1 for rule in found} == {len(rule.env) > 0 for rule in found} == {True, False}


@pytest.mark.parametrize("rule", entries(), ids=str)
def test_an_entry_is_undone_by_no_variable(rule: ExecRule) -> None:
    policy = Policy(granted=Grants(exec=(rule,)))
    assert policy.exec(rule.words, list(rule.env)) is None
    for name in DECISIVE:
        refusal = policy.exec(rule.words, [*rule.env, name])
        assert refusal is not None
        assert f'"{name}"' in refusal.text("exec.run", "x")
