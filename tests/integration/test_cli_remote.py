"""Each command that asks a daemon, by its URL."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from spyweb.cli.main import OF_FILES, build
from tests.fakes.command import spyweb
from tests.fakes.daemon_service import FakeDaemonService
from tests.fakes.daemon_socket import serve_daemon_tcp
from tests.fakes.web_server import unused_port

KEY = "s3cret"


@pytest.fixture
def remote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, FakeDaemonService]]:
    """A daemon with a key, asked from a folder whose own project is broken."""
    (tmp_path / "config.toml").write_text("nonsense [")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SPYWEB_API_KEY", KEY)
    service = FakeDaemonService(root=tmp_path / "elsewhere")
    log = service.log_file(service.jobs()[1].id)
    log.parent.mkdir(parents=True)
    log.write_text("one\ntwo\n")
    with serve_daemon_tcp(service, KEY) as url:
        yield url, service


DONE = """
jobs; show prices; runs; runs prices; next; records prices; outbox; outbox --retry all; health; nodes; logs prices
trigger prices; retry 3; pause prices; resume prices; run prices; debug prices
state set greeting hello; state list; state list --job prices; state stats; state locks; state export -
state history greeting; state workflow list; drift; drift prices; uptime; uptime prices; audit; audit prices
state delete greeting --yes; state clear --yes; state import - --yes; state move old new
alerts list; alerts history; alerts channels; alerts silence prices 1h; alerts unsilence prices
maintenance list; maintenance begin 2h --job prices; maintenance end 1; keys list; keys add phone; keys audit
"""
ABSENT = "state get greeting; state show greeting"
COMMANDS = [(words, code) for code, many in enumerate((DONE, ABSENT)) for words in re.split("[;\n] ?", many.strip())]


ALONE = {"version"}  # asks nobody
ENDLESS, OF_FILES_TOO = {"state watch"}, {"state rekey", "store move"}
INCIDENT = ["show 1", "ack 1", "unack 1", "note 1 known"]
REFUSED_THERE = {
    *("state rollback", "keys revoke", "alerts test", "status export"),
    *(f"alerts {words.split()[0]}" for words in INCIDENT),
}
ELSEWHERE = ENDLESS | OF_FILES_TOO | REFUSED_THERE


@pytest.mark.parametrize(("words", "code"), COMMANDS)
def test_every_command_works_against_a_remote_daemon(
    remote: tuple[str, FakeDaemonService], words: str, code: int
) -> None:
    answer = spyweb("--url", remote[0], *words.split())
    assert (answer.code, answer.err if code == 2 else "") == (code, ""), answer.err


def test_no_command_that_asks_a_daemon_is_left_out() -> None:
    root = typer.main.get_command(build())
    tried = [words.split()[:2] for words, _ in COMMANDS]
    for name, command in root.commands.items():  # type: ignore[attr-defined]
        if name not in OF_FILES | ALONE and not command.hidden:
            inner = getattr(command, "commands", None)
            wanted = [[name, each] for each in inner if f"{name} {each}" not in ELSEWHERE] if inner else [[name]]
            assert [each for each in wanted if not any(words[: len(each)] == each for words in tried)] == []


def test_what_is_not_there_is_refused_there(remote: tuple[str, FakeDaemonService]) -> None:
    assert "there is no key 'phone'" in spyweb("--url", remote[0], "keys", "revoke", "phone").err
    for words in INCIDENT:
        assert f"{remote[0]}: there is no incident 1" in spyweb("--url", remote[0], "alerts", *words.split()).err
    assert "config.toml has no [status_page]" in spyweb("--url", remote[0], "status", "export", "site").err
    assert "there is no channel nobody" in spyweb("--url", remote[0], "alerts", "test", "nobody").err
    assert "there is no version 9" in spyweb("--url", remote[0], "state", "rollback", "greeting", "9", "--yes").err


def test_what_a_command_does_is_done_there(remote: tuple[str, FakeDaemonService]) -> None:
    url, service = remote
    assert spyweb("--url", url, "trigger", "prices").out.startswith("run 9 of prices starts: ")
    assert spyweb("--url", url, "logs", "prices", "-n", "1").out == "two\n"
    assert spyweb("--url", url, "state", "set", "greeting", "hello").code == 0
    assert spyweb("--url", url, "state", "get", "greeting").out == "hello\n"
    begun = "maintenance 1 has begun, for 2h\n"
    assert spyweb("--url", url, "maintenance", "begin", "2h", "--tag", "web", "--text", "disk").out == begun
    assert spyweb("--url", url, "maintenance", "end", "1").out == "maintenance 1 has ended\n"
    maintenance = ["begin 7200000 web disk by SPYWEB_API_KEY", "end 1"]
    assert service.story == ["trigger prices", *(f"maintenance {each}" for each in maintenance)]


def test_the_variable_stands_for_the_option_unless_a_folder_is_named(
    remote: tuple[str, FakeDaemonService], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, _ = remote
    monkeypatch.setenv("SPYWEB_URL", url)
    assert spyweb("jobs").code == 0
    assert "config.toml" in spyweb("jobs", root=tmp_path).err
    monkeypatch.setenv("SPYWEB_URL", f"http://127.0.0.1:{unused_port()}")
    assert spyweb("--url", url, "jobs").code == 0
    assert "nothing listens there" in spyweb("jobs").err


ON_FILES = "start; stop; try x y; check; test; init x; schema; types; systemd install; artifacts prices"


@pytest.mark.parametrize(
    "words", [*ON_FILES.split("; "), "state rekey none --yes", "state import --from spyweb old.db"]
)
def test_a_command_that_works_on_files_says_so(words: str) -> None:
    answer = spyweb("--url", "http://127.0.0.1:1", *words.split())
    assert (answer.code, answer.err.count("\n")) == (2, 1)
    of_all, of_some = (
        f"`spyweb {words.split()[0]}` works on files of this machine",
        "this command needs the project's files",
    )
    assert (of_some if words.startswith("state") else of_all) in answer.err


def test_a_folder_and_a_url_exclude_each_other(tmp_path: Path) -> None:
    answer = spyweb("--url", "http://127.0.0.1:1", "jobs", root=tmp_path)
    assert (answer.code, "it goes without -C" in answer.err) == (2, True)


@pytest.mark.parametrize("key", [None, "guess"])
def test_a_wrong_key_is_one_line_and_code_2(
    remote: tuple[str, FakeDaemonService], monkeypatch: pytest.MonkeyPatch, key: str | None
) -> None:
    monkeypatch.delenv("SPYWEB_API_KEY") if key is None else monkeypatch.setenv("SPYWEB_API_KEY", key)
    answer = spyweb("--url", remote[0], "trigger", "prices")
    assert (answer.code, answer.err.count("\n"), answer.out) == (2, 1, "")
    assert "key" in answer.err
    assert remote[1].story == []
