"""What has to happen so that the live jobs are what the files say.  Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from spyweb.jobs.discover import JobFile
from spyweb.jobs.live import LiveJob, LiveJobs
from spyweb.model import JobId


@dataclass(slots=True)
class Plan:
    """Live jobs and files, side by side."""

    new: list[JobFile] = field(default_factory=list)
    recoded: list[tuple[LiveJob, JobFile]] = field(default_factory=list)  # a newer version, a fresh VM
    respecified: list[tuple[LiveJob, JobFile]] = field(default_factory=list)  # settings only, same VM
    same: list[LiveJob] = field(default_factory=list)
    gone: list[LiveJob] = field(default_factory=list)


def _needs_new_vm(job: LiveJob, file: JobFile, stale: bool) -> bool:
    old, new = job.spec, file.spec
    vm_changed = (old.memory_limit, old.isolation, old.path) != (new.memory_limit, new.isolation, new.path)
    return stale or vm_changed or job.digest != file.digest


def plan(live: LiveJobs, files: Mapping[JobId, JobFile], broken: Iterable[JobId], stale: Iterable[JobId]) -> Plan:
    """Compare the live jobs with the files.  A broken file is neither gone nor changed: its old version goes on."""
    what, stale_ids, broken_ids = Plan(), set(stale), set(broken)
    for job_id, file in files.items():
        job = live.find(job_id)
        if job is None:
            what.new.append(file)
        elif _needs_new_vm(job, file, job_id in stale_ids):
            what.recoded.append((job, file))
        elif job.spec != file.spec:
            what.respecified.append((job, file))
        else:
            what.same.append(job)
    what.gone = [job for job in live if job.id not in files and job.id not in broken_ids]
    return what
