"""Compare the live jobs with the files, and plan the changes that make them agree.  Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from spyweb.errors import Problem
from spyweb.lua.session import variable_rules
from spyweb.model import JobId
from spyweb.runs.live import LiveJob, LiveJobs
from spyweb.specs.discover import Scan
from spyweb.specs.parse import JobFile


class Plan(Struct):
    """The changes that bring the live jobs in line with the files."""

    new: list[JobFile] = field(default_factory=list)
    recoded: list[tuple[LiveJob, JobFile]] = field(default_factory=list)  # a newer version, a fresh VM
    respecified: list[tuple[LiveJob, JobFile]] = field(default_factory=list)  # settings only, same VM
    gone: list[LiveJob] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        return not (self.new or self.recoded or self.respecified or self.gone)

    def files(self) -> list[JobFile]:
        """Return the files that hold something which is not live yet."""
        return [*self.new, *(file for _, file in self.recoded), *(file for _, file in self.respecified)]

    def without(self, jobs: Collection[JobId]) -> Plan:
        """Return the plan as if these jobs had not changed."""
        return replace(
            self,
            new=[file for file in self.new if file.spec.id not in jobs],
            recoded=[(job, file) for job, file in self.recoded if job.id not in jobs],
            respecified=[(job, file) for job, file in self.respecified if job.id not in jobs],
        )

    def executing(self) -> Plan:
        """Return the part of the plan whose files have to be executed before they go live."""
        return Plan(
            new=[file for file in self.new if must_execute(file)],
            recoded=[(job, file) for job, file in self.recoded if must_execute(file)],
        )


def must_execute(file: JobFile) -> bool:
    return file.has_hooks and file.spec.enabled


def _needs_new_vm(job: LiveJob, file: JobFile, stale: bool) -> bool:
    old, new = job.spec, file.spec
    vm_changed = (old.memory_limit, old.isolation, old.path) != (new.memory_limit, new.isolation, new.path)
    wakes = must_execute(file) and not old.enabled
    vm_changed |= job.code.variables != variable_rules(new.policy, new.id)
    return stale or vm_changed or wakes or job.digest != file.digest


def plan(live: LiveJobs, files: Mapping[JobId, JobFile], broken: Iterable[JobId], stale: Iterable[JobId]) -> Plan:
    """Compare the live jobs with the files.  A broken file counts as unchanged: its old version stays."""
    what, stale_ids, broken_ids = Plan(), set(stale), set(broken)
    for job_id, file in files.items():
        job = live.find(job_id)
        if job is None:
            what.new.append(file)
        elif _needs_new_vm(job, file, job_id in stale_ids):
            what.recoded.append((job, file))
        elif job.spec != file.spec:
            what.respecified.append((job, file))
    what.gone = [job for job in live if job.id not in files and job.id not in broken_ids]
    return what


def whose(live: Iterable[LiveJob], found: Scan) -> dict[JobId, Sequence[Problem]]:
    """Return the problems by job.

    A broken file may not name its job any more: then the problem belongs to the live job that came from this file.
    """
    broken, claimed = dict(found.broken), set()
    unsure = {path.rstrip("/"): path for path in found.unsure}
    for job in live:
        if job.id in found.jobs or job.id in found.broken:
            continue
        for path in (unsure[place] for place in _places(job) if place in unsure):
            broken[job.id] = found.unsure[path]
            claimed.add(path)
    known = {job.id for job in live}
    return {
        job: problems
        for job, problems in broken.items()
        if job in known or not {problem.file for problem in problems} <= claimed
    }


def not_loaded(live: LiveJobs, broken: Iterable[JobId], unsure: Iterable[str]) -> frozenset[str]:
    """Return the jobs with a file but without a live version, and the files that might belong to such a job."""
    places = {place for job in live for place in _places(job)}
    files = {path for path in unsure if path.rstrip("/") not in places}
    return frozenset(files | {job for job in broken if live.find(job) is None})


def _places(job: LiveJob) -> Iterator[str]:
    """Yield the file that a job came from, and each folder around it."""
    path = job.spec.path
    while path:
        yield path
        path = path.rpartition("/")[0]
