"""Read `on`, the changes of stored values that start a job, and gather what jobs want the store to keep.  Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

from spyweb.model import WRITTEN, ChangeKind, JobId, JobSpec, On
from spyweb.settings.reading import TEXT, Reading, Tables, shaped, wrong
from spyweb.settings.values import some_of, text
from spyweb.specs.linting.names import KEYWORDS
from spyweb.store.model.entries import (
    GLOBAL,
    SCOPES,
    STATE,
    HistoryRules,
    WantedChange,
    Watch,
    agent_namespace,
    job_namespace,
    scope_namespace,
)
from spyweb.store.patterns import compile_pattern, excess

AGENT, JOB = f"{STATE}@", job_namespace(JobId(""))

_EVENTS = some_of("an event", {kind.value: frozenset({kind}) for kind in ChangeKind})
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@shaped(TEXT)
def _namespace(value: object) -> str:
    """Return the namespace: another family's name stands for that family, unless `scope:` stands before it."""
    scope = text(value)
    if scope in (AGENT, JOB):
        raise ValueError(f"{scope!r} must go on with a name")
    if scope.startswith(AGENT):
        return agent_namespace(scope.removeprefix(AGENT))
    if scope in (STATE, GLOBAL) or scope.startswith((SCOPES, JOB)):
        return scope
    return scope_namespace(scope)


@shaped(TEXT, bytes.decode)
def _pattern(value: object) -> bytes:
    key = text(value).encode()
    if (reason := excess(key)) is not None:
        raise ValueError(reason)
    return key


@shaped(TEXT)
def _function(value: object) -> str:
    name = text(value)
    if not _NAME.fullmatch(name) or name.encode() in KEYWORDS:
        raise wrong("the name of a global Lua function", name)
    return name


def take_on(read: Reading) -> On:
    return On(
        namespace=read.take("scope", _namespace, None) or SCOPES,
        is_prefix=not read.has("scope"),
        key=read.take("key", _pattern, b"*"),
        kinds=read.take("events", _EVENTS, WRITTEN),
        when=read.take("when", _function, None),
    )


ON = Tables(
    take=take_on,
    expected='{ scope = "name", key = "*", events = ["created"], when = "function" }, or a list of such',
    alone=True,
)


def watches_of(specs: Iterable[JobSpec]) -> list[Watch]:
    """Return the watches of the store for these jobs."""
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
