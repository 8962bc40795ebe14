"""Read the `on` of a job, which changes of stored values start it, and match it with changes.  Pure.

What jobs want the store to keep for them is gathered here: the changes that they watch, and past versions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from spyweb.model import WRITTEN, ChangeKind, JobId, JobSpec, On
from spyweb.settings.reading import nearest, unknown
from spyweb.settings.shapes import TEXT, one_or_many, shaped, table_of
from spyweb.settings.values import choice, text, wrong
from spyweb.store.patterns import compile_pattern, excess
from spyweb.store.protocol import GLOBAL, job_namespace
from spyweb.store.values_protocol import (
    SCOPES,
    STATE,
    HistoryRules,
    WantedChange,
    Watch,
    agent_namespace,
    scope_namespace,
)

KEYS = ("scope", "key", "events", "when")
KINDS = {kind.value: kind for kind in ChangeKind}
_EVENTS = one_or_many({"enum": [*KINDS]})
AGENT, JOB = f"{STATE}@", job_namespace(JobId(""))

_EXPECTED = '{ scope = "name", key = "*", events = ["created"], when = "function" }, or a list of such'
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RESERVED = frozenset(
    [
        *("and", "break", "do", "else", "elseif", "end", "false", "for", "function", "goto", "if", "in", "local"),
        *("nil", "not", "or", "repeat", "return", "then", "true", "until", "while"),
    ]
)


@shaped(one_or_many(table_of({"scope": TEXT, "key": TEXT, "events": _EVENTS, "when": TEXT})))
def read_on(value: object) -> tuple[On, ...]:
    """Read the `on` of a job.  Raises ValueError with what was expected."""
    return tuple(_read_one(item) for item in (value if isinstance(value, list) else [value]))


def _read_one(value: object) -> On:
    if not isinstance(value, Mapping):
        raise wrong(_EXPECTED, value)
    for key in value:
        if key not in KEYS:
            raise ValueError(f"{unknown('key', key, KEYS)} ({key!r})")
    namespace = _namespace(text(value["scope"])) if "scope" in value else SCOPES
    return On(
        namespace=namespace,
        is_prefix="scope" not in value,
        key=_pattern(text(value.get("key", "*")).encode()),
        kinds=_kinds(value["events"]) if "events" in value else WRITTEN,
        when=_function(value["when"]) if "when" in value else None,
    )


def _namespace(scope: str) -> str:
    """Return the namespace: another family's name stands for that family, unless `scope:` stands before it."""
    if scope in (AGENT, JOB):
        raise ValueError(f"scope {scope!r} must go on with a name")
    if scope.startswith(AGENT):
        return agent_namespace(scope.removeprefix(AGENT))
    if scope in (STATE, GLOBAL) or scope.startswith((SCOPES, JOB)):
        return scope
    return scope_namespace(scope)


def _pattern(key: bytes) -> bytes:
    if (reason := excess(key)) is not None:
        raise ValueError(f"key: {reason}")
    return key


def _kinds(value: object) -> frozenset[ChangeKind]:
    names = value if isinstance(value, list) else [value]
    if not names:
        raise ValueError("events can't be an empty list")
    return frozenset(_kind(name) for name in names)


def _kind(name: object) -> ChangeKind:
    if not isinstance(name, str) or name not in KINDS:
        raise ValueError(f"{wrong(f'an event: {choice([*KINDS])}, or a list of them', name)}{nearest(name, KINDS)}")
    return KINDS[name]


def _function(value: object) -> str:
    name = text(value)
    if not _NAME.fullmatch(name) or name in _RESERVED:
        raise wrong("the name of a global Lua function", name)
    return name


def watches_of(specs: Iterable[JobSpec]) -> list[Watch]:
    """Return what the store has to watch for these jobs."""
    asked = [(spec.id, on) for spec in specs if spec.enabled for on in spec.on]
    watches = [
        Watch(job=job, namespace=on.namespace, is_prefix=on.is_prefix, key=on.key, kinds=on.kinds) for job, on in asked
    ]
    return list(dict.fromkeys(watches))


def history_rules(configured: HistoryRules, specs: Iterable[JobSpec]) -> HistoryRules:
    """Return the rules of `[state.history]`, and of each job the rule that it sets for its own values."""
    return {**configured, **{job_namespace(spec.id): spec.history for spec in specs if spec.history}}


def concerns(on: On, change: WantedChange) -> bool:
    in_scope = change.namespace.startswith(on.namespace) if on.is_prefix else change.namespace == on.namespace
    return in_scope and change.kind in on.kinds and compile_pattern(on.key).matches(change.key)


def scope_of(namespace: str) -> str:
    """Return the name of a scope as scripts and people know it."""
    return namespace.removeprefix(SCOPES)
