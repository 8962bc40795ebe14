"""The quarantine knows which jobs must have a worker of their own beside those whose settings say so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spyweb.lua.session import Code
from spyweb.model import JobId


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    generation: int  # a newer one is given another chance
    reason: str
    until_clean_run: bool


class Quarantine:
    def __init__(self) -> None:
        self._cases: dict[JobId, Case] = {}

    def put(self, code: Code, reason: str, *, until_clean_run: bool) -> None:
        self._cases[code.job] = Case(generation=code.generation, reason=reason, until_clean_run=until_clean_run)

    def holds(self, code: Code) -> bool:
        if not self._cases:
            return False
        case = self._cases.get(code.job)
        return case is not None and code.generation <= case.generation

    def release_after_clean_run(self, code: Code) -> bool:
        """Note a clean run; say whether it ended a quarantine."""
        case = self._cases.get(code.job)
        if case is None or not case.until_clean_run or code.generation > case.generation:
            return False
        del self._cases[code.job]
        return True

    def renew(self, job: JobId, older_than: int) -> None:
        """Forget what generations below this number did: a newer one is given another chance."""
        case = self._cases.get(job)
        if case is not None and case.generation < older_than:
            del self._cases[job]

    @property
    def reasons(self) -> Mapping[JobId, str]:
        return {job: case.reason for job, case in self._cases.items()}
