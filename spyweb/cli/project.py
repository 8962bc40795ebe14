"""A project as the commands ask it: through its daemon where one runs, else from its files and its database.

With a URL it is asked through the daemon there, and through nothing else.
"""

from __future__ import annotations

import os
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from spyweb.cli.client import DaemonClient, find_daemon
from spyweb.cli.transport import UrlTransport
from spyweb.clock import RealClock
from spyweb.errors import Problem, Refused
from spyweb.model import JobId, Run, RunId
from spyweb.settings import Settings, load_settings
from spyweb.settings.load import examine_settings
from spyweb.store.access import no_access, refusal, user_name
from spyweb.views.drift import DriftReport
from spyweb.views.jobs import JobView, NextRun, find_job, log_file, no_such_job
from spyweb.views.outbox import MessageView
from spyweb.views.records import RecordView
from spyweb.views.runs import TaskView
from spyweb.views.workflows import WorkflowDetail, WorkflowView

if TYPE_CHECKING:
    from spyweb.cli.offline import OfflineProject


URL = "SPYWEB_URL"
MOST_REMOTE_LINES = 10_000
NO_FILES = Path(os.devnull)  # in place of a project's folder


class ProjectSource(Protocol):
    """The questions that a daemon and an offline project both answer."""

    def jobs(self) -> list[JobView]: ...

    def warnings(self) -> list[Problem]:
        """Return what is doubtful in the project's files."""

    def next_runs(self, job: JobId | None, count: int) -> list[NextRun]: ...

    def runs(self, job: JobId | None, *, limit: int, before: RunId | None) -> list[Run]: ...

    def tasks(self, run: RunId) -> list[TaskView]: ...

    def workflows(self, limit: int) -> list[WorkflowView]: ...

    def workflow(self, which: str) -> WorkflowDetail:
        """Return a run with tasks, by its id or the name of its workflow or job.  Raises Refused."""

    def drift(self, job: JobId | None) -> DriftReport:
        """Compare what is there with what was recorded, of one job or of all."""

    def records(self, job: JobId, *, limit: int, before_ns: int | None) -> list[RecordView]: ...

    def messages(self, job: JobId | None, *, limit: int) -> list[MessageView]: ...

    def retry_messages(self, message: int | None) -> list[int]: ...


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
        """Return the files and the database; imported only where no daemon answers, since that takes time."""
        from spyweb.cli.offline import OfflineProject

        return OfflineProject(self.settings, self.clock)

    def refuse_strangers(self) -> None:
        """Raise NoAccess, naming the owner, when the data directory is another user's."""
        if error := no_access(self.settings.daemon.data_dir):
            raise error

    is_elsewhere = False  # on another machine

    def need_files(self, what: str) -> None:
        """Raise Refused where the project is on another machine, and this command works on its files."""

    def known_jobs(self) -> list[JobView]:
        """Return the jobs, with what their files alone say."""
        return self.offline.views()

    def log_lines(self, job: JobView, count: int) -> list[str]:
        """Return the last lines that a job's script has logged."""
        from spyweb.logs.tail import last_lines  # of one command

        return last_lines(log_file(self.root, job.folder), count)

    def find_daemon(self) -> DaemonClient | None:
        return find_daemon(self.settings.daemon.data_dir)

    def source(self) -> ProjectSource:
        return self.find_daemon() or self.offline


class RemoteProject(Project):
    """A project whose daemon is asked by its URL; it has no files here, and the usual settings stand in for its own."""

    is_elsewhere = True

    def __init__(self, url: str, key: str | None) -> None:
        usual, _ = examine_settings(NO_FILES, environ={"TZ": os.environ.get("TZ", "")}, flags={})
        super().__init__(usual, RealClock())
        self._daemon = DaemonClient(UrlTransport(url, key))
        self._url = url

    def need_files(self, what: str) -> None:
        raise Refused(f"{what} works on the files of a project: leave out --url and {URL}")

    @cached_property
    def offline(self) -> OfflineProject:
        raise Refused(f"{self._url}: this needs the files of the project: leave out --url and {URL}")

    def known_jobs(self) -> list[JobView]:
        return self._daemon.jobs()

    def log_lines(self, job: JobView, count: int) -> list[str]:
        return self._daemon.log_lines(job.id, min(count, MOST_REMOTE_LINES))

    def find_daemon(self) -> DaemonClient | None:
        return self._daemon


def open_project(root: Path) -> Project:
    """Open the project.  Raises ConfigError when its config.toml is wrong, NoAccess where this user may not look."""
    if not os.access(root, os.R_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids):
        raise refusal(root, user_name(root.stat().st_uid))
    return Project(load_settings(root, environ=os.environ, flags={}), RealClock())


def find_in(views: list[JobView], name_or_id: str) -> JobId:
    """Return the job of this name or id.  Raises Refused, with the nearest name, when there is none."""
    job = find_job(views, name_or_id)
    if job is None:
        raise Refused(no_such_job(views, name_or_id))
    return job
