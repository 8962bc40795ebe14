"""A project as the commands see it: through its daemon when one runs, otherwise through its files and its database.

A project that is named by a URL is seen through the daemon at that URL only.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from spyweb.cli import output
from spyweb.cli.client import DaemonClient, UrlTransport, find_daemon
from spyweb.clock import RealClock
from spyweb.errors import Refused
from spyweb.model import JobId
from spyweb.settings.load import examine_settings, load_settings
from spyweb.settings.sections import Settings
from spyweb.store.access import no_access, refusal, user_name
from spyweb.views.jobs import JobView, find_job, no_such_job

if TYPE_CHECKING:
    from spyweb.cli.offline import OfflineProject
    from spyweb.store.sqlite.store import Store

URL = "SPYWEB_URL"
NO_FILES = Path(os.devnull)  # in place of a project's folder
T = TypeVar("T")


Backend: TypeAlias = "DaemonClient | OfflineProject"


class Project:
    """A project's settings, and access to its daemon or to its files."""

    def __init__(self, settings: Settings, clock: RealClock) -> None:
        self.settings = settings
        self.clock = clock

    @property
    def root(self) -> Path:
        return self.settings.root

    @cached_property
    def offline(self) -> OfflineProject:
        """Return the files and the database.  Raises Refused when the project is on another machine."""
        from spyweb.cli.offline import OfflineProject  # slow to import: only needed when no daemon answers

        return OfflineProject(self.settings, self.clock)

    def moment(self, ms: int) -> str:
        return output.row_moment(ms, self.settings.daemon.timezone, self.clock.now_ms())

    def refuse_strangers(self) -> None:
        """Raise NoAccess, naming the owner, when the data directory is another user's."""
        if error := no_access(self.settings.daemon.data_dir):
            raise error

    is_elsewhere = False  # on another machine

    def find_daemon(self) -> DaemonClient | None:
        return find_daemon(self.settings.daemon.data_dir)

    def need_daemon(self, hint: str = ": `spyweb start` starts one") -> DaemonClient:
        """Return the daemon.  Raises Refused when none runs."""
        daemon = self.find_daemon()
        if daemon is None:
            raise Refused(f"no daemon runs in {self.root}{hint}")
        return daemon

    def backend(self) -> Backend:
        return self.find_daemon() or self.offline

    def stored(self) -> Backend:
        """Return the daemon or the database.  Raises Refused when the database was in memory and has ended."""
        if self.settings.store.is_memory:
            return self.need_daemon(", and its database was in memory: it ended with the daemon")
        return self.backend()


class RemoteProject(Project):
    """A project whose daemon is asked by its URL; it has no files here, and the defaults stand in for its settings."""

    is_elsewhere = True

    def __init__(self, url: str, key: str | None) -> None:
        usual, _ = examine_settings(NO_FILES, environ={"TZ": os.environ.get("TZ", "")}, flags={})
        super().__init__(usual, RealClock())
        self._daemon = DaemonClient(UrlTransport(url, key))
        self._url = url

    @cached_property
    def offline(self) -> OfflineProject:
        raise Refused(f"{self._url}: this command needs the project's files: leave out --url and {URL}")

    def find_daemon(self) -> DaemonClient | None:
        return self._daemon


def open_project(root: Path) -> Project:
    """Open the project.  Raises ConfigError when its config.toml is wrong, NoAccess when this user may not read it."""
    if not os.access(root, os.R_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids):
        raise refusal(root, user_name(root.stat().st_uid))
    return Project(load_settings(root, environ=os.environ, flags={}), RealClock())


def answer_of(source: Backend, target: str, kind: type[T], ask: Callable[[Store], Awaitable[T]], otherwise: T) -> T:
    """Ask the daemon, otherwise the database; return `otherwise` before the first start, when there is no database."""
    return source.ask("GET", target, kind) if isinstance(source, DaemonClient) else source.read(ask, otherwise)


def find_in(views: list[JobView], name_or_id: str) -> JobId:
    """Return the job of this name or id.  Raises Refused, with the nearest name, when there is none."""
    job = find_job(views, name_or_id)
    if job is None:
        raise Refused(no_such_job(views, name_or_id))
    return job


def found_of(source: Backend, name: str | None, ask: Callable[[JobId | None], T]) -> T:
    """Return the findings of a job, or without a name of all jobs.

    A job that was removed keeps its findings.  Raises Refused for an unknown name without any.
    """
    if name is None:
        return ask(None)
    jobs = source.jobs()
    known = find_job(jobs, name)
    found = ask(known or JobId(name))
    if not (known or found):
        raise Refused(no_such_job(jobs, name))
    return found
