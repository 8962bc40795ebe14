"""Open the scripts' database for tests: statements by job and run, their rows as they come."""

from __future__ import annotations

from dataclasses import dataclass

from spyweb.model import MIB, BranchId, JobId, RunId
from spyweb.store.user_sql.connection import LONGEST_S, Answered, Parameter, Row, Statement
from spyweb.store.user_sql.user_db import UserDatabase


def statement(sql: str, *parameters: Parameter, rows: bool = True, longest_s: float = LONGEST_S) -> Statement:
    return Statement(sql=sql, parameters=parameters, wants_rows=rows, largest=MIB, longest_s=longest_s)


@dataclass(frozen=True, slots=True)
class Asker:
    """Executes SQL as a run of a job."""

    database: UserDatabase
    job: str = "a"
    run: int = 1
    branch: int = 0

    async def rows(self, sql: str, *parameters: Parameter, longest_s: float = LONGEST_S) -> list[Row]:
        asked = statement(sql, *parameters, longest_s=longest_s)
        return list((await self._ask(asked)).rows)

    async def changed(self, sql: str, *parameters: Parameter) -> int:
        asked = statement(sql, *parameters, rows=False)
        return (await self._ask(asked)).changed

    async def _ask(self, asked: Statement) -> Answered:
        owner = BranchId(RunId(self.run), self.branch) if self.branch else RunId(self.run)
        answered = await self.database.ask(JobId(self.job), owner, asked)
        if answered.error is not None:
            raise answered.error
        return answered
