"""Which modules that jobs loaded have changed on disk since, and their code, to be proved before it is used."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Protocol

from spyweb.errors import OpError, Problem
from spyweb.lua.session import Code
from spyweb.model import JobId
from spyweb.runs.live import LiveJob


class Modules(Protocol):
    """What each generation of a job has loaded (ops/sources.py)."""

    def changed(self, job: JobId, generation: int) -> list[str]: ...

    def forget(self, job: JobId, generation: int) -> None: ...

    def read(self, path: str) -> bytes | None:
        """None: it is gone.  Raises OpError where it is not to be loaded."""


def changed_modules(modules: Modules, jobs: Iterable[LiveJob]) -> dict[JobId, list[str]]:
    """By job, for those where something changed.  Reads files: call it in a thread."""
    changed = {job.id: modules.changed(job.id, job.code.generation) for job in jobs}
    return {job: paths for job, paths in changed.items() if paths}


def module_codes(modules: Modules, user: Code, paths: Iterable[str]) -> list[Code | Problem]:
    """These modules as code to be proved, in the name of what loads them; what may not be loaded is a problem.

    Reads files: call it in a thread.
    """
    found = (_code(modules, user, path) for path in paths)
    return [each for each in found if each is not None]


def _code(modules: Modules, user: Code, path: str) -> Code | Problem | None:
    try:
        source = modules.read(path)
    except OpError as error:
        return Problem(path, None, None, str(error).removeprefix(path).lstrip(": "))
    return None if source is None else replace(user, chunk=path, source=source)
