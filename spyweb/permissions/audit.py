"""Note what a run reaches, and show it as a block of permissions that permits that and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from spyweb.permissions.hosts import shown_host
from spyweb.permissions.policy import DESKTOP, EVERYTHING, exec_item, item_of, job_table, quoted

LISTS = ("net", "exec", "files", "env", "state")
SWITCHES = ("db", "global_store")
NOTIFY = "notify"  # a list, or false
MOST = 10_000  # items that are noted: a script must not fill the memory


def _command(command: str | Sequence[str], env: Iterable[str] = ()) -> str:
    return quoted(EVERYTHING) if isinstance(command, str) else exec_item(command[:1], env)


def _channel(name: str = DESKTOP) -> str:
    return name


def _itself(text: str) -> str:
    return text


# By the check of a policy: the key, and the item that permits what was asked; of `exec` as TOML.
ITEMS: Mapping[str, tuple[str, Callable[..., str]]] = {
    "host": ("net", shown_host),
    "exec": ("exec", _command),
    "folder": ("files", _itself),
    "path": ("files", _itself),
    "variable": ("env", _itself),
    "notify": ("notify", _channel),
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
        """Note what a check of the policy has permitted."""
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
        """Return what was reached as TOML: every key, so that nothing else is permitted."""
        lists = {
            key: [item if key == "exec" else quoted(item) for item in sorted(items)]
            for key, items in self._items.items()
        }
        lists["state"] += [self._state(namespace, write) for namespace, write in sorted(self._writes.items())]
        lines = [f"{key} = [{', '.join(lists[key])}]" for key in LISTS]
        lines += [f"{key} = {str(key in self._switches).lower()}" for key in SWITCHES]
        lines.append(f"{NOTIFY} = [{', '.join(lists[NOTIFY])}]" if lists[NOTIFY] else f"{NOTIFY} = false")
        return "\n".join([f"[{job_table(job)}]", *lines])

    def _state(self, namespace: str, write: bool) -> str:
        item = quoted(item_of(namespace))
        return item if write else f"{{ scope = {item}, read_only = true }}"
