"""Read the permissions of jobs: `[permissions]`, `[jobs.ID.permissions]`, and the keys of a job's own settings."""

from __future__ import annotations

import os
from pathlib import Path

from spyweb.permissions.hosts import EVERYTHING, read_net
from spyweb.permissions.policy import JOB, SHARED, ExecRule, FilesRule, Grants, Policy, read_state
from spyweb.settings.reading import NOT_BLANK, TEXT, Reading, Tables, list_of, shaped, wrong
from spyweb.settings.values import boolean, one_line, text, texts

PREFIX = "SPYWEB_"

_NET = shaped(list_of(TEXT), none=[EVERYTHING])(lambda value: read_net(texts(value)))
_VARIABLES = shaped(list_of(NOT_BLANK), list)(lambda value: frozenset(map(one_line, texts(value))))


def take_grants(read: Reading, usual: Grants) -> Grants:
    """Return the permissions of a table; a missing key is as in `usual`."""
    net = read.take("net", _NET, usual.net)
    commands = read.tables("exec", _COMMANDS, usual.exec)
    return Grants(
        net=net,
        exec=None if commands and any(rule.words == (EVERYTHING,) for rule in commands) else commands,
        files=read.take("files", _files, usual.files),
        env=read.take("env", _env, usual.env),
        db=read.take("db", boolean, usual.db),
        global_store=read.take("global_store", boolean, usual.global_store),
        notify=read.take("notify", _notify, usual.notify),
        state=usual.state if (scopes := read.tables("state", _SCOPES, None)) is None else read_state(scopes),
    )


def find_writable_program(policy: Policy, root: Path, folder: str) -> str:
    """Return why a program can't be permitted: the job could replace it.  Reads the file system."""
    writable = [str(root / folder), str(root / SHARED), *policy.roots]
    for program in policy.programs:
        for place in writable:
            if _is_below(os.path.realpath(program), os.path.realpath(place)) or _is_below(program, place):
                return f"{program} is in {place}, where the job may write: the job could replace it"
    return ""


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _take_command(read: Reading) -> ExecRule:
    read.require("command")
    words: tuple[str, ...] = read.take("command", _words, ())
    return ExecRule(words, read.take("env", _VARIABLES, frozenset()))


@shaped({"anyOf": [NOT_BLANK, list_of(TEXT, minItems=1)]})
def _words(value: object) -> tuple[str, ...]:
    words = texts(value) if isinstance(value, list) else (one_line(value),)
    if words == (EVERYTHING,):
        return words
    if not words or not words[0].startswith("/"):
        raise ValueError(f"{' '.join(words)[:80]!r}: a program is named by its absolute path")
    if os.path.normpath(words[0]) != words[0]:
        raise ValueError(f"{words[0][:80]!r}: a path without '..' and '//' expected")
    return words


_COMMANDS = Tables(
    take=_take_command,
    expected="a list of programs by absolute path, or of arrays",
    instead=shaped(_words.schema)(lambda value: ExecRule(_words(value))),
)


@shaped(list_of(NOT_BLANK), lambda _: [JOB, SHARED])
def _files(value: object) -> FilesRule:
    items = texts(value)
    places = frozenset(item for item in items if item in (JOB, SHARED))
    return FilesRule(places, tuple(_root(item) for item in items if item not in (JOB, SHARED)))


def _root(item: str) -> str:
    path = one_line(item)
    if not path.startswith("/"):
        raise ValueError(f'{item[:80]!r}: "job", "shared" or an absolute path expected')
    bare = path.rstrip("/") or "/"
    if os.path.normpath(bare) != bare:
        raise ValueError(f"{item[:80]!r}: a path without '..' and '//' expected")
    return bare


@shaped(list_of(NOT_BLANK), none=[EVERYTHING])
def _env(value: object) -> frozenset[str] | None:
    names = [one_line(item).removeprefix(PREFIX) for item in texts(value)]
    for name in names:
        if name != EVERYTHING and EVERYTHING in name:
            raise ValueError(f'{name[:80]!r}: a whole name expected, or "{EVERYTHING}" alone')
    return None if EVERYTHING in names else frozenset(names)


@shaped({"anyOf": [{"type": "boolean"}, list_of(NOT_BLANK)]}, lambda may: may if isinstance(may, bool) else sorted(may))
def _notify(value: object) -> bool | frozenset[str]:
    if isinstance(value, bool):
        return value
    if not isinstance(value, list):
        raise wrong('true, false, or a list of notification channels: ["phone", "desktop"]', value)
    names = [one_line(item) for item in texts(value)]
    return EVERYTHING in names or frozenset(names)


def _take_scope(read: Reading) -> tuple[str, bool]:
    read.require("scope")
    return read.take("scope", _scope, ""), read.take("read_only", boolean, False)


@shaped(NOT_BLANK)
def _scope(value: object) -> str:
    scope = text(value)
    if scope in ("", "agent:", "job:") or (scope != EVERYTHING and EVERYTHING in scope):
        raise ValueError(f'{scope[:80]!r}: the name of a scope, "agent:NAME", or "{EVERYTHING}" alone expected')
    return scope


_SCOPES = Tables(
    take=_take_scope,
    expected='a list of scopes: "orders", "agent:NAME" or { scope = "orders", read_only = true }',
    instead=shaped(NOT_BLANK)(lambda value: (_scope(value), False)),
    none=[EVERYTHING],
)
