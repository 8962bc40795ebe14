"""What an audit notes is what the block that it shows permits."""

from __future__ import annotations

import tomllib

from spyweb.permissions.audit import MOST, Audit
from spyweb.permissions.policy import Grants, policy_of
from spyweb.settings.permissions import take_grants
from spyweb.settings.reading import Reading, SettingsSource
from spyweb.settings.tables import TomlTable, parse_table


def test_the_block_permits_what_was_used_and_nothing_else() -> None:
    audit = Audit()
    for check, *arguments in (
        ("host", "example.com", 443),
        ("host", "2001:db8::1", 80),
        ("exec", ["/usr/bin/rsync", "-a"]),
        ("folder", "job"),
        ("path", "/srv/www"),
        ("state", "scope:orders", False),
        ("state", "scope:orders", True),
        ("state", "state", False),
        ("db",),
    ):
        audit.note(str(check), *arguments)
    table = parse_table(audit.block("x"), "config.toml")
    assert isinstance(table, TomlTable)
    problems: list[object] = []
    reading = Reading([SettingsSource.of(table.table("jobs", "x", "permissions"))], problems)  # type: ignore[arg-type]
    policy = policy_of(take_grants(reading, Grants()))
    reading.finish()
    assert not problems
    assert policy.host("example.com", 443) is None
    assert policy.host("example.com", 80) is not None
    assert policy.host("2001:db8::1", 80) is None
    assert policy.exec(["/usr/bin/rsync", "x"]) is None
    assert policy.exec(["/bin/true"]) is not None
    assert policy.folder("job") is None
    assert policy.folder("shared") is not None
    assert policy.path("/srv/www/a") == "/srv/www"
    assert policy.state("scope:orders", True) is None
    assert policy.state("state", False) is None
    assert policy.state("state", True) is not None
    assert policy.db() is None
    assert policy.global_store() is not None
    assert policy.notify() is not None


def test_shell_text_needs_everything() -> None:
    audit = Audit()
    audit.note("exec", "true | cat")
    assert tomllib.loads(audit.block("x"))["jobs"]["x"]["permissions"]["exec"] == ["*"]


def test_what_is_noted_is_bounded() -> None:
    audit = Audit()
    for number in range(MOST + 10):
        audit.note("host", f"h{number}.test", 80)
    assert len(tomllib.loads(audit.block("x"))["jobs"]["x"]["permissions"]["net"]) == MOST


def test_a_command_is_shown_with_its_variables() -> None:
    audit = Audit()
    audit.note("exec", ["/bin/sh", "x"], [])
    audit.note("exec", ["/bin/sh", "y"], ["TOKEN", "LANG"])
    with_variables = {"command": ["/bin/sh"], "env": ["LANG", "TOKEN"]}
    assert tomllib.loads(audit.block("x"))["jobs"]["x"]["permissions"]["exec"] == ["/bin/sh", with_variables]
