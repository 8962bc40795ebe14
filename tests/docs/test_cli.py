"""Every command explains itself, and the page about the command line knows every command, option, code and address."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import pytest
import typer

from spyweb.cli.main import COMMANDS, EXIT_CODES, GROUPS, HIDDEN, build, read_guide
from spyweb.errors import ExitCode
from spyweb.model import Outcome
from spyweb.views.jobs import JobState
from tests.fakes.command import spyweb
from tests.fakes.repository import code_blocks, code_words, pages, read

PAGE = read("docs/reference/cli.md")
EVERYWHERE = {"-h", "--help", "-o", "--output"}  # explained once, at the top of the page
OF_STATE = {"--job", "--scope", "--agent", "--global", "--yes"}  # explained once, before the commands about state


class Parameter(Protocol):
    opts: list[str]
    param_type_name: str
    help: str | None


@dataclass(frozen=True)
class Command:
    name: str
    help: str
    options: frozenset[str] = field(default_factory=frozenset)
    without_help: frozenset[str] = field(default_factory=frozenset)


def commands() -> Iterator[Command]:
    """Every command that is shown, those of groups as `group command`."""
    root = typer.main.get_command(build())
    for name, command in root.commands.items():  # type: ignore[attr-defined]
        below = getattr(command, "commands", None)
        if below:
            yield from (describe(f"{name} {inner}", each) for inner, each in below.items())
        elif not command.hidden:
            yield describe(name, command)


def describe(name: str, command: object) -> Command:
    parameters: list[Parameter] = command.params  # type: ignore[attr-defined]
    return Command(
        name=name,
        help=command.help or "",  # type: ignore[attr-defined]
        options=frozenset(word for each in parameters for word in each.opts if word.startswith("-")),
        without_help=frozenset(each.opts[0] for each in parameters if not each.help and each.opts[0] != "context"),
    )


ALL = list(commands())
NAMES = [command.name for command in ALL]


def section_of(command: str) -> str:
    found = re.search(rf"^### `spyweb {command}`\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found, f"docs/reference/cli.md has no section about `spyweb {command}`"
    return found[1]


def test_all_commands_are_looked_at() -> None:
    of_groups = {f"{group} {name}" for group, names in GROUPS.items() for name in names}
    assert {*COMMANDS, *of_groups} == set(NAMES)


@pytest.mark.parametrize("command", ALL, ids=NAMES)
def test_every_command_and_every_option_has_help(command: Command) -> None:
    first, *_ = command.help.splitlines()
    assert first.endswith(".")
    assert len(first) < 60, "longer than the list of commands can show"
    assert not command.without_help
    answer = spyweb(*command.name.split(), "--help")
    assert answer.code == 0
    assert "Usage:" in answer.out
    assert " ".join(answer.out.split()).endswith(EXIT_CODES)


@pytest.mark.parametrize("name", ["", *GROUPS, *NAMES])
def test_every_help_has_examples_that_the_command_line_takes(name: str) -> None:
    summary, *examples = read_guide().get(name or "spyweb", ("",))
    assert examples, f"spyweb/cli/guide.txt has no example of `spyweb {name}`"
    assert [summary] == [command.help.splitlines()[0] for command in ALL if command.name == name] or name not in NAMES
    shown = spyweb(*name.split(), "--help").out
    for example in examples:
        assert f"\n  {example}\n" in shown
        program, *words = shlex.split(example)
        assert program == "spyweb"
        assert take(words, typer.main.get_command(build())).startswith(name)


def take(words: list[str], command: Any, path: str = "", parent: Any = None) -> str:
    """Parse words as the command line does, without running anything; return the command that they name."""
    context = command.make_context(path or "spyweb", words, parent)
    if not hasattr(command, "commands"):
        return path
    name, below, rest = command.resolve_command(context, [*context._protected_args, *context.args])
    return take(rest, below, f"{path} {name}".strip(), context)


@pytest.mark.parametrize("command", ALL, ids=NAMES)
def test_every_command_and_option_is_on_the_page_and_no_other(command: Command) -> None:
    words = set(re.findall(r"(?<![\w-])--?[a-z][\w-]*", section_of(command.name)))
    elsewhere = EVERYWHERE | OF_STATE if command.name.startswith("state ") else EVERYWHERE
    assert command.options - elsewhere <= words
    assert "-o" in words or "--output" not in command.options
    promised = {word for word in words if word.startswith("--")}
    assert promised <= command.options | {"--version"}  # that one stands before any command


def test_the_page_has_no_section_about_a_command_that_is_not_there() -> None:
    assert set(re.findall(r"^### `spyweb ([a-z ]+)`$", PAGE, re.MULTILINE)) == set(NAMES)


def test_commands_that_are_not_shown_are_on_the_page() -> None:
    assert all(f"`spyweb {name}`" in PAGE for name in HIDDEN)


def test_every_exit_code_is_on_the_page_and_in_the_help() -> None:
    assert set(re.findall(r"^\| (\d+) \|", PAGE, re.MULTILINE)) == {str(int(code)) for code in ExitCode}
    assert all(f"{int(code)} " in EXIT_CODES for code in ExitCode)


def test_every_state_and_outcome_is_on_the_page() -> None:
    assert {f"`{state}`" for state in JobState} <= set(re.findall(r"`\w+`", section_of("jobs")))
    assert {f"`{outcome}`" for outcome in Outcome} <= set(re.findall(r"`\w+`", section_of("runs")))


_TYPED = re.compile(r"(?:^|[ /])(?:spyweb )+(?:(?:-C|--url) \S+ )?([a-z][^#|;&\n]*)", re.MULTILINE)


def typed(text: str) -> list[str]:
    words = [word for word in code_words(text) if word.startswith("spyweb ")]
    return _TYPED.findall("\n".join([*code_blocks(text, "sh"), *code_blocks(text, "console"), *words]))


def test_every_command_that_a_page_shows_is_there_with_its_options() -> None:
    known = dict.fromkeys((*HIDDEN, "v", "state", "keys", "alerts", "systemd"), frozenset(EVERYWHERE))
    known |= {each.name: each.options | EVERYWHERE | OF_STATE for each in ALL}
    found = [page for page in pages() if "/design/" not in str(page)]
    shown = [(page.name, line.split()) for page in found for line in typed(page.read_text("utf-8")) if "…" not in line]
    assert len(shown) > 300
    for name, words in shown:
        options = known.get(" ".join(words[:2]), known.get(words[0], frozenset()))
        assert options, (name, words)
        assert {word.partition("=")[0] for word in words if re.match("--?[a-zA-Z]", word)} <= options, (name, words)
