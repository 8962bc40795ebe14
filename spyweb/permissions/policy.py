"""The policy of a job: what it may reach, by the daemon's settings and by its own.

A policy is immutable, and jobs with equal settings share one.  Its checks return None, or the Refusal that names the
key to add; they have no effect.  The job's own settings are a second list that must permit it as well: no
intersection is ever computed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import NamedTuple

from msgspec import Struct

from spyweb.permissions.hosts import EVERYTHING, NO_ADDRESS, NetHost, NetRule, address_text, read_host, shown_host

KEYS = ("net", "exec", "files", "env", "db", "global_store", "notify", "state")
JOB, SHARED = "job", "shared"
DESKTOP = "desktop"  # among the names of notification channels: notifications there
STATE, AGENT, SCOPE, OWN = "state", "state@", "scope:", "job:"  # how the namespaces of values are named
SERVER_TABLE = "server.permissions"
MOST_NAMED = 20  # variables in an error

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_AGENT_ITEM = "agent:"


class ExecRule(NamedTuple):
    """One entry of `exec`: a command is permitted that begins so, with these variables."""

    words: tuple[str, ...]  # the beginning of an argv; a program alone has one element
    env: frozenset[str] = frozenset()


class StateRule(NamedTuple):
    """The namespaces that one `state` lists."""

    readable: frozenset[str]
    writable: frozenset[str]
    reads_all: bool = False

    def permits(self, namespace: str, write: bool) -> bool:
        return namespace in self.writable or (not write and (self.reads_all or namespace in self.readable))


@dataclass(frozen=True, slots=True)
class FilesRule:
    """The folders that one `files` lists."""

    places: frozenset[str]  # of JOB and SHARED
    roots: tuple[str, ...] = ()  # absolute and normalized
    _inner: tuple[tuple[str, str], ...] = field(init=False, repr=False, compare=False)  # each with a slash behind it

    def __post_init__(self) -> None:
        inner = tuple((root, root.rstrip("/") + "/") for root in sorted(self.roots, key=len, reverse=True))
        object.__setattr__(self, "_inner", inner)

    def root_of(self, path: str) -> str:
        """Return the innermost root below which a path lies; empty if there is none."""
        for root, folder in self._inner:
            if path.startswith(folder) or path == root:
                return root
        return ""


class Refusal(NamedTuple):
    """A failed check: the refused deed, and the setting that would permit it."""

    key: str
    deed: str  # after "may not"
    add: str  # as TOML; empty: the key is to be true
    is_own: bool = False  # the job's own settings refuse it
    is_server: bool = False
    hint: str = ""  # instead of the key

    def text(self, function: str, job: str) -> str:
        who = "the server" if self.is_server else f"'{job}'"
        return f"{function}: {who} may not {self.deed}: {self.remedy(job)}"

    def remedy(self, job: str) -> str:
        if self.hint:
            return self.hint
        if self.is_own:
            where = "under permissions in its own settings"
            return f"add {self.add} to {self.key} {where}" if self.add else f"set {self.key} = true {where}"
        table = SERVER_TABLE if self.is_server else job_table(job)
        if not self.add:
            return f"set {self.key} = true in [{table}] in config.toml"
        return f"add {self.add} to [{table}] {self.key} in config.toml"


class Grants(Struct, frozen=True, kw_only=True):
    """One list of permitted items.  None: everything that the key is about."""

    net: NetRule | None = None
    exec: tuple[ExecRule, ...] | None = None
    files: FilesRule | None = None
    env: frozenset[str] | None = None  # names without SPYWEB_
    db: bool = True
    global_store: bool = True
    notify: bool | frozenset[str] = True  # or names of notification channels, and DESKTOP
    state: StateRule | None = None


USUAL_FILES = FilesRule(frozenset({JOB, SHARED}))
USUAL = Grants(exec=(), files=USUAL_FILES)  # without any setting


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    granted: Grants = USUAL  # by config.toml
    own: Grants | None = None  # by the job's own settings; None: they say nothing
    is_server: bool = False
    is_test: bool = False  # commands are off, with any lists
    layers: tuple[Grants, ...] = field(init=False)
    net: tuple[NetRule, ...] = field(init=False)  # empty: any host
    restricted: frozenset[str] = field(init=False)  # the keys that do not permit everything
    _states: tuple[StateRule, ...] = field(init=False)

    def __post_init__(self) -> None:
        layers = (self.granted,) if self.own is None else (self.granted, self.own)
        restricted = {key for layer in layers for key in KEYS if getattr(layer, key) not in (None, True)}
        object.__setattr__(self, "layers", layers)
        object.__setattr__(self, "net", tuple(layer.net for layer in layers if layer.net is not None))
        object.__setattr__(self, "restricted", frozenset(restricted))
        object.__setattr__(self, "_states", tuple(layer.state for layer in layers if layer.state is not None))

    def items(self, key: str) -> list[list[str]]:
        """Return what each list says of a key, as its settings do: `*` for everything."""
        return [_items(getattr(layer, key)) for layer in self.layers]

    # Hosts

    def host(self, host: str, port: int, *, proxied: bool = False) -> Refusal | None:
        """Check a host as it was written.  A name that may only lead to some networks is checked again at the socket;
        a proxy resolves it elsewhere, and a header only claims it, so there it is refused (`proxied`)."""
        if not self.net:
            return None
        found = read_host(host)
        for rule in self.net:
            permitted = rule.permits(found, port)
            if permitted is False or (permitted is None and proxied):
                return self._refuse_host(rule, found, port)
        return None

    def address(self, host: str, port: int, address: str) -> Refusal | None:
        """Check the address that a host has led to."""
        found, reached = read_host(host), read_host(address).address or NO_ADDRESS
        for rule in self.net:
            if not rule.has(reached) and not rule.permits(found, port):
                return self._refuse_host(rule, found, port, f", which is {address}")
        return None

    def own_listener(self, host: str, port: int) -> Refusal | None:
        """Check a host that has led to the daemon itself: config.toml must name it with its port."""
        rule = self.granted.net
        if rule is not None and rule.lists_with_port(read_host(host), port):
            return None
        return self._refuse_unlisted(f"reach {shown_host(host, port)}, which is this daemon", shown_host(host, port))

    def private_redirect(self, host: str, port: int, address: str) -> Refusal | None:
        """Check a redirect from a public host to a private address: config.toml must name the host."""
        rule = self.granted.net
        if rule is not None and rule.lists(read_host(host), port, read_host(address).address or NO_ADDRESS):
            return None
        where = shown_host(host, port) + ("" if host == address else f", which is {address}")
        return self._refuse_unlisted(f"be redirected by a public host to {where}", host)

    def _refuse_unlisted(self, deed: str, item: str) -> Refusal:
        return self._refusal("net", deed, quoted(item) if self.granted.net else f'"*", {quoted(item)}', is_own=False)

    def _refuse_host(self, rule: NetRule, host: NetHost, port: int, remark: str = "") -> Refusal:
        name = host.name
        if host.address is not None and host.address.version:
            name = address_text(host.address)
            remark = remark or ("" if name == host.name else f", written {host.name[:80]}")
        deed = f"reach {shown_host(name, port)}{remark}"
        return self._refusal("net", deed, quoted(name), is_own=rule is not self.granted.net)

    # Commands

    def exec(self, command: str | Sequence[str], env: Collection[str] = ()) -> Refusal | None:
        """Check a command, shell text or its arguments, and its variables: many programs take code from theirs."""
        for layer in self.layers:
            if layer.exec is not None and (wrong := _refused_command(layer.exec, command, env)) is not None:
                return self._refusal("exec", *wrong, is_own=layer is self.own)
        if self.is_test:
            return Refusal("exec", "run a command in a test", "", hint="give spyweb test the flag --allow-exec")
        return None

    @property
    def may_exec(self) -> bool:
        return not self.is_test and all(layer.exec is None or bool(layer.exec) for layer in self.layers)

    @property
    def programs(self) -> tuple[str, ...]:
        rules = [rule for layer in self.layers for rule in layer.exec or ()] if self.may_exec else []
        return tuple(dict.fromkeys(rule.words[0] for rule in rules))

    def without_exec(self) -> Policy:
        return replace(self, is_test=True)

    # Files

    def folder(self, place: str) -> Refusal | None:
        """Check the job's own folder (`job`), or that of all jobs (`shared`)."""
        for layer in self.layers:
            if layer.files is not None and place not in layer.files.places:
                deed = "use its own folder" if place == JOB else "use the folder shared/"
                return self._refusal("files", deed, quoted(place), is_own=layer is self.own)
        return None

    def path(self, path: str) -> str | Refusal:
        """Check an absolute path without `..`; return the innermost root that it lies below."""
        innermost = ""
        for layer in self.layers:
            if layer.files is None:
                continue
            root = layer.files.root_of(path)
            if not root:
                return self._refusal("files", f"use {path[:200]}", quoted(path), is_own=layer is self.own)
            if len(root) > len(innermost):
                innermost = root
        return innermost

    @property
    def roots(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(root for layer in self.layers if layer.files for root in layer.files.roots))

    # Values

    def state(self, namespace: str, write: bool) -> Refusal | None:
        for rule in self._states:
            if not rule.permits(namespace, write):
                deed = f"{'write' if write else 'read'} {_described(namespace)}"
                is_own = rule is not self.granted.state
                return self._refusal("state", deed, quoted(item_of(namespace)), is_own=is_own)
        return None

    def all_scopes(self) -> Refusal | None:
        """Check a call about scopes that names none."""
        for rule in self._states:
            if not rule.reads_all:
                is_own = rule is not self.granted.state
                return self._refusal("state", "read all scopes", quoted(EVERYTHING), is_own=is_own)
        return None

    def switch(self, key: str, deed: str) -> Refusal | None:
        for layer in self.layers:
            if not getattr(layer, key):
                return self._refusal(key, deed, "", is_own=layer is self.own)
        return None

    def db(self) -> Refusal | None:
        return self.switch("db", "use the database")

    def global_store(self) -> Refusal | None:
        return self.switch("global_store", "use the keys that all jobs share")

    def notify(self, channel: str = DESKTOP) -> Refusal | None:
        """Check a message to a notification channel, or a notification on the desktop."""
        deed = "show notifications" if channel == DESKTOP else f"notify the channel {channel}"
        for layer in self.layers:
            may = layer.notify
            if may is False or (may is not True and channel not in may):
                add = "" if may is False and channel == DESKTOP else quoted(channel)
                return self._refusal("notify", deed, add, is_own=layer is self.own)
        return None

    @property
    def shows_others(self) -> bool:
        """Return whether the SQL views show what other jobs keep, too."""
        return "global_store" not in self.restricted

    # Variables

    def refuse_variable(self, name: str, *, is_own: bool) -> Refusal:
        """Return the refusal of a variable: the VM itself compares names."""
        return Refusal("env", f"read SPYWEB_{name}", f'"{name}"', is_own=is_own, is_server=self.is_server)

    def _refusal(self, key: str, deed: str, add: str, *, is_own: bool) -> Refusal:
        """Make a refusal of one line, with any text of a script in the deed."""
        return Refusal(key, "".join(map(_escaped, deed)), add, is_own=is_own, is_server=self.is_server)


def _items(rule: object) -> list[str]:
    match rule:
        case None:
            return [EVERYTHING]
        case bool():
            return [str(rule).lower()]
        case NetRule():
            return rule.items()
        case FilesRule():
            return [*sorted(rule.places), *rule.roots]
        case StateRule():
            reads = sorted(rule.readable - rule.writable) + ([EVERYTHING] if rule.reads_all else [])
            read_only = (EVERYTHING if name == EVERYTHING else item_of(name) for name in reads)
            return [*map(item_of, sorted(rule.writable)), *(f"{item} (read only)" for item in read_only)]
        case frozenset():
            return sorted(map(str, rule))
        case tuple():
            return [
                f"{' '.join(words)} (with {', '.join(sorted(env))})" if env else " ".join(words) for words, env in rule
            ]
        case _:
            return []


def exec_item(words: Sequence[str], env: Iterable[str] = ()) -> str:
    """Return the item of `exec` that permits a command with these variables, as TOML."""
    names, arguments = (", ".join(map(quoted, each)) for each in (sorted(env), words))
    if names:
        return f"{{ command = [{arguments}], env = [{names}] }}"
    return arguments if len(words) == 1 else f"[{arguments}]"


def _refused_command(
    listed: tuple[ExecRule, ...], command: str | Sequence[str], env: Collection[str]
) -> tuple[str, str] | None:
    """Return the refused part of a command, and the item that would permit it; None if it is permitted."""
    if isinstance(command, str) or not command:
        return "run shell text", quoted(EVERYTHING)
    fitting = [rule for rule in listed if tuple(command[: len(rule.words)]) == rule.words]
    if any(rule.env.issuperset(env) for rule in fitting):
        return None
    if not fitting:
        return f"run {command[0][:200]}", exec_item(command[:1], list(env)[:MOST_NAMED])
    missing = next(name for name in env if name not in fitting[0].env)
    return f"set {missing[:80]} for {command[0][:200]}", exec_item(fitting[0].words, list(env)[:MOST_NAMED])


ANYTHING = Policy()  # as without any setting


@lru_cache(maxsize=4096)
def policy_of(granted: Grants, own: Grants | None = None, *, is_server: bool = False) -> Policy:
    """Return the policy of these settings, the same object for equal ones."""
    return Policy(granted=granted, own=own, is_server=is_server)


def read_state(items: Iterable[tuple[str, bool]]) -> StateRule | None:
    """Read the items of a `state`, each with whether it is read-only.  None: everything is permitted."""
    readable: set[str] = set()
    writable: set[str] = set()
    for item, read_only in items:
        if item == EVERYTHING and not read_only:
            return None
        (readable if read_only else writable).add(item if item == EVERYTHING else namespace_of(item))
    return StateRule(frozenset(readable - {EVERYTHING}), frozenset(writable), EVERYTHING in readable)


def namespace_of(item: str) -> str:
    """Return the namespace that an item of `state` stands for: a scope, unless it begins with another family's name."""
    if item.startswith((SCOPE, OWN)):
        return item
    if item.startswith(_AGENT_ITEM):
        agent = item.removeprefix(_AGENT_ITEM)
        return STATE if agent == "local" else AGENT + agent
    return SCOPE + item


def item_of(namespace: str) -> str:
    if namespace == STATE:
        return f"{_AGENT_ITEM}local"
    if namespace.startswith(AGENT):
        return _AGENT_ITEM + namespace.removeprefix(AGENT)
    name = namespace.removeprefix(SCOPE)
    return name if name and name != EVERYTHING and namespace_of(name) == namespace else namespace


def _described(namespace: str) -> str:
    item = item_of(namespace)
    if namespace.startswith(SCOPE):
        return f"the scope {namespace.removeprefix(SCOPE)[:80]}"
    kind, _, name = item.partition(":")
    return f"the {'state of agent' if kind == 'agent' else 'values of job'} {name[:80]}"


def quoted(text: str) -> str:
    """Return a text as TOML."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{"".join(_escaped(character) for character in escaped)}"'


def _escaped(character: str) -> str:
    return character if character.isprintable() else f"\\U{ord(character):08X}"


def job_table(job: str) -> str:
    return f"jobs.{job if _BARE.fullmatch(job) else quoted(job)}.permissions"


LISTS = ("net", "exec", "files", "env", "state")
SWITCHES = ("db", "global_store")
NOTIFY = "notify"  # a list, or false
MOST = 10_000  # items that are noted: a script must not fill the memory


def _command(command: str | Sequence[str], env: Iterable[str] = ()) -> str:
    return quoted(EVERYTHING) if isinstance(command, str) else exec_item(command[:1], env)


# By the check of a policy: the key, and the item that permits what was asked; of `exec` as TOML.
ITEMS: Mapping[str, tuple[str, Callable[..., str]]] = {
    "host": ("net", shown_host),
    "exec": ("exec", _command),
    "folder": ("files", str),
    "path": ("files", str),
    "variable": ("env", str),
    "notify": ("notify", lambda channel=DESKTOP: channel),
    "all_scopes": ("state", lambda: EVERYTHING),
}


class Audit:
    """Notes of what one run has reached."""

    def __init__(self) -> None:
        self._items: dict[str, set[str]] = {key: set() for key in (*LISTS, NOTIFY)}
        self._switches: set[str] = set()
        self._writes: dict[str, bool] = {}  # namespace → whether it was written
        self._count = 0

    def note(self, check: str, *arguments: object) -> None:
        """Note an item that a check of the policy has permitted."""
        if check in SWITCHES:
            self._switches.add(check)
            return
        if self._count >= MOST:
            return
        self._count += 1
        if check == "state":
            namespace, write = str(arguments[0]), bool(arguments[1])
            self._writes[namespace] = write or self._writes.get(namespace, False)
        else:
            key, item_for = ITEMS[check]
            self._items[key].add(item_for(*arguments))

    def block(self, job: str) -> str:
        """Return the used items as TOML: every key, so that nothing else is permitted."""
        lists = {
            key: [item if key == "exec" else quoted(item) for item in sorted(items)]
            for key, items in self._items.items()
        }
        for namespace, write in sorted(self._writes.items()):
            item = quoted(item_of(namespace))
            lists["state"].append(item if write else f"{{ scope = {item}, read_only = true }}")
        lines = [f"{key} = [{', '.join(lists[key])}]" for key in LISTS]
        lines += [f"{key} = {str(key in self._switches).lower()}" for key in SWITCHES]
        lines.append(f"{NOTIFY} = [{', '.join(lists[NOTIFY])}]" if lists[NOTIFY] else f"{NOTIFY} = false")
        return "\n".join([f"[{job_table(job)}]", *lines])
