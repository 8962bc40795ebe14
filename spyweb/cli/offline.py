"""Answer the commands from a project's files and its database when no daemon runs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from spyweb.cli import output
from spyweb.clock import Clock
from spyweb.errors import StoreAbsent
from spyweb.model import JobSpec
from spyweb.settings.sections import Settings
from spyweb.specs.discover import Scan, scan
from spyweb.specs.watches import history_rules, watches_of
from spyweb.store.access import no_access
from spyweb.store.lock import hold_lock
from spyweb.store.marker import Marker
from spyweb.store.opening import open_any
from spyweb.store.sqlite.damage import refuse_missing, size_of
from spyweb.views.jobs import JobView, broken_job, view_job

if TYPE_CHECKING:
    from spyweb.store.sqlite.store import Store

T = TypeVar("T")


class OfflineProject:
    """Reads the files and the database of a project; reading never takes the lock, changing something does.

    A command asks the same services as a daemon, and imports each only when it needs it: imports take time.
    """

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self.settings = settings
        self.clock = clock

    def jobs(self, view: Callable[[JobSpec], JobView] = view_job) -> list[JobView]:
        """Return the jobs as their files describe them; `view` makes the view of each job that loads."""
        broken = [broken_job(job, problems) for job, problems in self.scanned.broken.items()]
        return sorted([*map(view, self.specs), *broken], key=lambda view: view.id)

    @cached_property
    def scanned(self) -> Scan:
        return scan(self.settings.root, self.settings)

    @property
    def specs(self) -> list[JobSpec]:
        return [file.spec for file in self.scanned.jobs.values()]

    def read(self, ask: Callable[[Store], Awaitable[T]], otherwise: T) -> T:
        """Ask the database; return `otherwise` before the first start, when there is none."""
        path, data_dir = self.settings.store.path, self.settings.daemon.data_dir
        if data_dir.exists() and (error := no_access(data_dir)):
            raise error
        if not self.settings.store.is_postgres and not path.exists():
            marker = self.marker()
            refuse_missing(path, marker.folder if marker.found else None)
            return otherwise
        try:
            return asyncio.run(self._ask(ask, read_only=True))
        except StoreAbsent:
            return otherwise

    def write(self, ask: Callable[[Store], Awaitable[T]]) -> T:
        """Change the database, under the lock.  Raises LockHeld when another process has it."""
        from spyweb.store.sqlite.backup import settle_restore  # slow to import: reading needs it not

        output.log_only_errors()
        path = self.settings.store.path
        with hold_lock(self.settings.daemon.data_dir, root=self.settings.root, clock=self.clock):
            settle_restore(self.settings)
            is_new = self.settings.store.is_file and not size_of(path)
            answer = asyncio.run(self._ask(ask, read_only=False))
        if is_new:
            output.note(f"created a new database: {path}")
        return answer

    def marker(self) -> Marker:
        return Marker(self.settings.daemon.data_dir, self.settings.database, self.clock)

    def change_values(self, ask: Callable[[Store], Awaitable[T]]) -> T:
        """Change stored values as `write` does, with the jobs' rules on history and on changes that start a job."""

        def change(store: Store) -> Awaitable[T]:
            store.events.watch(watches_of(self.specs))
            store.values.keep_history(history_rules(self.settings.state.history, self.specs))
            return ask(store)

        return self.write(change)

    async def _ask(self, ask: Callable[[Store], Awaitable[T]], *, read_only: bool) -> T:
        store = await open_any(self.settings, clock=self.clock, marker=self.marker(), read_only=read_only)
        try:
            return await ask(store)
        finally:
            await store.close()
