"""Compare the apparent needs of each job's source with its permissions: `spyweb check --permissions`.

It is a guess from the text: only literals are known, and a run may do more or less.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from msgspec import Struct

from spyweb.checks.settings import CheckKind
from spyweb.errors import OpError
from spyweb.model import JobSpec
from spyweb.ops import catalog
from spyweb.ops.sources import Sources
from spyweb.permissions.hosts import ANY_PORT, shown_host, split_port
from spyweb.permissions.policy import KEYS, Policy, item_of
from spyweb.settings.load import examine_settings
from spyweb.settings.script_values import from_text
from spyweb.specs.discover import scan
from spyweb.specs.linting.linter import read_module
from spyweb.specs.linting.lua_file import words_of
from spyweb.specs.server_file import FOLDER, find_server
from spyweb.store.model.entries import GLOBAL, scope_namespace

NOT_OPS = {"env_get": "env", "exec.run": "exec", "cmd": "exec"}  # functions that are no ops of their name
FAMILIES = {"file": "files", "state": "state"}  # whose members are all about one key
TASK = "task"  # whose command is a text or an array
SERVER = "server"
MOST_MODULES = 1_000
PORTS = {"http": 80, "https": 443}
PORTS_OF_CHECKS: Mapping[str, int] = {CheckKind.TLS: 443, CheckKind.DNS: 53}


class UseView(Struct, frozen=True, kw_only=True):
    """One permission key of one job, as it is displayed."""

    job: str
    key: str
    functions: Sequence[str]
    literals: Sequence[str]  # hosts, scopes and names
    refused: Sequence[str]  # of the literals
    may: Sequence[str]  # by config.toml
    own: Sequence[str] | None  # by the job's own settings; None: they say nothing of it


def view_uses(root: Path) -> list[UseView]:
    """Return every key that a job's source needs, or that does not permit everything.  Reads files."""
    settings, _ = examine_settings(root, environ=os.environ, flags={})
    sources, channels = Sources(root), settings.alerts.channels
    views: list[UseView] = []
    for job, file in sorted(scan(root, settings).jobs.items()):
        finder = UseFinder(file.spec.policy, partial(read_module, sources, file.spec.folder), channels)
        finder.read_all([source for _, source in file.lua])
        finder.read_settings(file.spec)
        views += finder.views(job)
    server = find_server(root)
    if isinstance(server, bytes):
        finder = UseFinder(settings.server.permissions, partial(read_module, sources, FOLDER), channels)
        finder.read_all([server])
        views += finder.views(SERVER)
    return views


class UseFinder:
    """Collects the permissions that one job seems to need."""

    def __init__(self, policy: Policy, read: Callable[[bytes], bytes | None], channels: Collection[str]) -> None:
        self._policy = policy
        self._channels = channels  # for alerts
        self._read = read
        self._functions: Mapping[str, set[str]] = {key: set() for key in KEYS}
        self._literals: Mapping[str, dict[str, bool]] = {key: {} for key in KEYS}  # whether each is refused
        self._keys = {name: op.needs.key for name, op in catalog.CATALOGUE.items() if op.needs} | NOT_OPS

    def read_all(self, sources: Iterable[bytes]) -> None:
        """Read sources, and the modules that they require by a literal name."""
        waiting, seen = list(sources), set[bytes]()
        while waiting:
            for name in self._read_source(waiting.pop()):
                if name not in seen and len(seen) < MOST_MODULES:
                    seen.add(name)
                    with suppress(OpError):
                        waiting += filter(None, [self._read(name)])

    def _read_source(self, source: bytes) -> Iterator[bytes]:
        """Read one source; yield the names of the modules that it requires."""
        words = [word for word, _ in words_of(source)]
        for at, word in enumerate(words):
            before, after = words[max(0, at - 2) : at], words[at + 1 : at + 3]
            if word[:1] in (b'"', b"'"):
                text = word[1:-1]
                if (before[-1:] == [b"("] and before[:1] == [b"require"]) or before[-1:] == [b"require"]:
                    yield text
                if _is_command_of_task(words[max(0, at - 5) : at]):
                    self._functions["exec"].add(TASK)
                self._note_text(text.decode("utf-8", "replace"), [each.decode("ascii", "replace") for each in before])
            elif (word[:1].isalpha() or word[:1] == b"_") and before[-1:] not in ([b":"], [b"."]):
                name = family = word.decode("ascii")
                if after[:1] == [b"."] and len(after) > 1:
                    name = f"{family}.{after[1].decode('ascii', 'replace')}"
                key = self._keys.get(name) or (FAMILIES.get(family) if name != family else None)
                if key is not None:
                    self._functions[key].add(name)

    def _note_text(self, text: str, before: Sequence[str]) -> None:
        if before == ["scope", "="]:
            self._note_state(scope_namespace(text))
        elif before == ["channel", "="] and text in self._channels:
            self._note("notify", text, is_refused=self._policy.notify(text) is not None)
        elif before[:1] == ["env_get"] or before[-1:] == ["env_get"]:
            name = text.removeprefix("SPYWEB_")
            of_layers = (layer.env for layer in self._policy.layers if layer.env is not None)
            self._note("env", name, is_refused=any(name not in env for env in of_layers))
        else:
            self._note_url(text)

    def read_settings(self, spec: JobSpec) -> None:
        """Note the settings that need a permission without any Lua: a monitor's addresses, and the job's triggers."""
        for on in spec.on:
            if on.namespace != GLOBAL and not on.is_prefix:
                self._note_state(on.namespace)
        if spec.check:
            self._note_check(spec.check, from_text(spec.values))
        monitor = spec.monitor
        if monitor is None:
            return
        self._functions["net"].add("fetch")
        for url in (*monitor.urls, *(monitor.proxies.urls if monitor.proxies else ())):
            self._note_url(url)
        if monitor.webhook:
            self._functions["net"].add("webhook")
            self._note_url(monitor.webhook.url)
        if monitor.notification:
            self._functions["notify"].add("notification")

    def _note_check(self, kind: str, values: Mapping[str, object]) -> None:
        self._note_url(str(values.get("url", "")))
        with suppress(ValueError):
            host, port = split_port(str(values.get("server") or values.get("host") or ""))
            port = int(str(values.get("port", port)))
            if host:
                refusal = self._policy.host(host, port or PORTS_OF_CHECKS.get(kind, ANY_PORT))
                self._note("net", shown_host(host, port), is_refused=refusal is not None)

    def _note_url(self, text: str) -> None:
        """Note the host of an address; of an address with unknown parts, only a complete host."""
        try:
            parts = urlsplit(text)
            host, port = parts.hostname or "", parts.port or PORTS.get(parts.scheme, 0)
        except ValueError:
            return
        if parts.scheme in PORTS and host:
            shown = host if not parts.port else f"{host}:{parts.port}"
            self._note("net", shown, is_refused=self._policy.host(host, port) is not None)

    def _note_state(self, namespace: str) -> None:
        self._note("state", item_of(namespace), is_refused=self._policy.state(namespace, write=False) is not None)

    def _note(self, key: str, literal: str, *, is_refused: bool) -> None:
        self._literals[key][literal] = is_refused or self._literals[key].get(literal, False)

    def views(self, job: str) -> Iterator[UseView]:
        for key, functions in self._functions.items():
            granted, *own = self._policy.items(key)
            literals = self._literals[key]
            if functions or literals or key in self._policy.restricted - {"exec", "files"}:
                yield UseView(
                    job=job,
                    key=key,
                    functions=sorted(functions),
                    literals=sorted(literals),
                    refused=sorted(text for text, is_refused in literals.items() if is_refused),
                    may=granted,
                    own=own[0] if own and own[0] not in (["*"], ["true"]) else None,
                )


def _is_command_of_task(before: Sequence[bytes]) -> bool:
    """Return whether a text is a task's command, or the program of one, by the words before it."""
    words = list(before[:-1] if before[-1:] == [b"{"] else before)
    if words[-2:] == [b"command", b"="]:
        return b"cmd" not in words
    return (words[:-1] if words[-1:] == [b"("] else words)[-2:] == [b":", b"command"]
