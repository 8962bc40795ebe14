"""Read what jobs may reach: the keys of `[permissions]`, of `[jobs.ID.permissions]`, and of a job's own settings."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from spyweb.permissions.hosts import NetRule, read_net
from spyweb.permissions.policy import (
    EVERYTHING,
    JOB,
    SHARED,
    ExecRule,
    FilesRule,
    Grants,
    Policy,
    StateRule,
    read_state,
)
from spyweb.settings.reading import Reading, unknown
from spyweb.settings.shapes import NOT_BLANK, TEXT, list_of, shaped, table_of
from spyweb.settings.values import boolean, one_line, text, texts, wrong

PREFIX = "SPYWEB_"
_WORDS = {"anyOf": [NOT_BLANK, list_of(TEXT, minItems=1)]}
_COMMAND = {"anyOf": [*_WORDS["anyOf"], table_of({"command": _WORDS, "env": list_of(NOT_BLANK)}, "command")]}
_COMMAND_KEYS = ("command", "env")
_STATE_ITEM = {"anyOf": [NOT_BLANK, table_of({"scope": NOT_BLANK, "read_only": {"type": "boolean"}}, "scope")]}
_STATE_KEYS = ("scope", "read_only")


def take_grants(read: Reading, usual: Grants) -> Grants:
    """Take what a table of permissions says; a key that it has not is as usual."""
    return Grants(
        net=read.take("net", _net, usual.net),
        exec=read.take("exec", _exec, usual.exec),
        files=read.take("files", _files, usual.files),
        env=read.take("env", _env, usual.env),
        db=read.take("db", boolean, usual.db),
        global_store=read.take("global_store", boolean, usual.global_store),
        notify=read.take("notify", _notify, usual.notify),
        state=read.take("state", _state, usual.state),
    )


def find_writable_program(policy: Policy, root: Path, folder: str) -> str:
    """Return why a permitted program may not be one: the job could put another in its place.  Reads the file system."""
    writable = [str(root / folder), str(root / SHARED), *policy.roots]
    for program in policy.programs:
        for place in writable:
            if _is_below(os.path.realpath(program), os.path.realpath(place)) or _is_below(program, place):
                return f"{program} is in {place}, where the job may write: it could put anything in its place"
    return ""


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


@shaped(list_of(TEXT), none=[EVERYTHING])
def _net(value: object) -> NetRule | None:
    return read_net(texts(value))


@shaped(list_of(_COMMAND), list)
def _exec(value: object) -> tuple[ExecRule, ...] | None:
    if not isinstance(value, list):
        raise wrong("a list of programs by absolute path, or of arrays", value)
    rules = tuple(_exec_rule(item) for item in value)
    return None if any(rule.words == (EVERYTHING,) for rule in rules) else rules


def _exec_rule(item: object) -> ExecRule:
    if not isinstance(item, Mapping):
        return ExecRule(_words(item))
    _refuse_unknown(item, _COMMAND_KEYS)
    if "command" not in item:
        raise ValueError("a command is missing")
    return ExecRule(_words(item["command"]), frozenset(map(one_line, texts(item.get("env", [])))))


def _refuse_unknown(item: Mapping[str, object], keys: tuple[str, ...]) -> None:
    for key in item:
        if key not in keys:
            raise ValueError(f"{unknown('key', key, keys)} ({key!r})")


def _words(item: object) -> tuple[str, ...]:
    words = tuple(texts(item)) if isinstance(item, list) else (one_line(item),)
    if words == (EVERYTHING,):
        return words
    if not words or not words[0].startswith("/"):
        raise ValueError(f"{' '.join(words)[:80]!r}: a program is named by its absolute path")
    if os.path.normpath(words[0]) != words[0]:
        raise ValueError(f"{words[0][:80]!r}: a path without '..' and '//' expected")
    return words


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


def _show_notify(may: bool | frozenset[str]) -> bool | list[str]:
    return may if isinstance(may, bool) else sorted(may)


@shaped({"anyOf": [{"type": "boolean"}, list_of(NOT_BLANK)]}, _show_notify)
def _notify(value: object) -> bool | frozenset[str]:
    if isinstance(value, bool):
        return value
    if not isinstance(value, list):
        raise wrong('true, false, or a list of alert channels: ["phone", "desktop"]', value)
    names = [one_line(item) for item in texts(value)]
    return EVERYTHING in names or frozenset(names)


@shaped(list_of(_STATE_ITEM), none=[EVERYTHING])
def _state(value: object) -> StateRule | None:
    if not isinstance(value, list):
        raise wrong('a list of scopes: "orders", "agent:NAME" or { scope = "orders", read_only = true }', value)
    return read_state(_state_items(value))


def _state_items(items: list[object]) -> Iterator[tuple[str, bool]]:
    for item in items:
        if isinstance(item, Mapping):
            _refuse_unknown(item, _STATE_KEYS)
            if "scope" not in item:
                raise ValueError("a scope is missing")
            yield _scope(item["scope"]), boolean(item.get("read_only", False))
        else:
            yield _scope(item), False


def _scope(value: object) -> str:
    scope = text(value)
    if scope in ("", "agent:", "job:") or (scope != EVERYTHING and EVERYTHING in scope):
        raise ValueError(f'{scope[:80]!r}: the name of a scope, "agent:NAME", or "{EVERYTHING}" alone expected')
    return scope
