"""`spyweb keys`, without a daemon; with one in tests/acceptance/test_who_may_come_in.py."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.fakes.command import spyweb

Keys = list[dict[str, object]]


def test_a_key_is_made_listed_and_revoked_without_a_daemon(project: Path) -> None:
    made = spyweb("keys", "add", "deploy", "--scope", "state", "--scope", "run", "--job", "deploy-*", root=project)
    assert re.fullmatch(r"spyweb_[0-9A-Za-z]{57}\n", made.out)
    assert "keep it, nobody is shown it again" in made.err

    listed = spyweb("keys", "list", root=project)
    (row,) = listed.table
    assert row[:4] == ["deploy", f"{made.out[:15]}...", "run state", "deploy-*"]
    assert row[-1] == "never"
    (view,) = spyweb("keys", "list", "-o", "json", root=project).json
    assert (view["name"], view["scopes"], view["jobs"]) == ("deploy", ["run", "state"], ["deploy-*"])

    assert spyweb("keys", "revoke", "deploy", root=project).out == "deploy is revoked\n"
    assert spyweb("keys", "list", root=project).err == "there is no key\n"
    again = spyweb("keys", "revoke", "deploy", root=project)
    assert (again.code, again.err) == (2, "spyweb: there is no key 'deploy': `spyweb keys list` shows them\n")


def test_a_key_reads_unless_more_is_said(project: Path) -> None:
    made = spyweb("keys", "add", "phone", "-o", "json", root=project)
    key = json.loads(made.out)
    assert key["key"]["scopes"] == ["read"]
    assert key["token"].startswith(key["key"]["begins"])
    assert made.err.count("\n") <= 1  # that a new database begins


def test_the_token_is_in_no_file_and_no_other_answer(project: Path) -> None:
    token = spyweb("keys", "add", "phone", root=project).out.strip()
    for words in (["list"], ["list", "-o", "json"], ["audit"], ["audit", "-o", "json"]):
        answer = spyweb("keys", *words, root=project)
        assert token[15:] not in answer.out + answer.err
    files = [path for path in project.rglob("*") if path.is_file()]
    assert any(path.name.startswith("spyweb.db") for path in files)
    assert not [path for path in files if token[15:].encode() in path.read_bytes()]


def test_what_was_done_is_on_record(project: Path) -> None:
    assert spyweb("keys", "audit", root=project).err == "nobody has done anything yet\n"
    spyweb("keys", "add", "phone", root=project)
    spyweb("keys", "revoke", "phone", root=project)

    found = spyweb("keys", "audit", "-o", "json", root=project).json
    assert [(line["who"], line["action"], line["target"], line["status"]) for line in found] == [
        ("local", "DELETE /api/keys/{name}", "phone", 200),
        ("local", "POST /api/keys", "phone", 200),
    ]
    assert len(spyweb("keys", "audit", "-n", "1", root=project).table) == 1


def test_keys_in_memory_are_gone_without_a_daemon(project: Path) -> None:
    (project / "config.toml").write_text('[store]\nurl = "memory:"\n')
    answer = spyweb("keys", "list", root=project)
    assert (answer.code, "what it kept in memory went with it" in answer.err) == (2, True)
