"""Which modules that jobs loaded have changed on disk since, and their code, to be proved before it is used."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from spyweb.jobs.live import LiveJob
from spyweb.lua.session import Code
from spyweb.model import JobId


class Modules(Protocol):
    """What each generation of a job has loaded (ops/sources.py)."""

    def changed(self, job: JobId, generation: int) -> list[str]: ...

    def forget(self, job: JobId, generation: int) -> None: ...


def changed_modules(modules: Modules, jobs: Iterable[LiveJob]) -> dict[JobId, list[str]]:
    """By job, for those where something changed.  Reads files: call it in a thread."""
    changed = {job.id: modules.changed(job.id, job.code.generation) for job in jobs}
    return {job: paths for job, paths in changed.items() if paths}


def module_codes(root: Path, user: Code, paths: Sequence[str]) -> list[Code]:
    """These modules as code to be proved, in the name of what loads them."""
    present = [path for path in paths if (root / path).is_file()]
    return [replace(user, chunk=path, source=(root / path).read_bytes()) for path in present]
