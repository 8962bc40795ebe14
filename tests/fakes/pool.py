"""A fake pool of workers without Lua: runs end when and how the test says."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from spyweb.lua.pool import Pool
from spyweb.lua.session import Code, Host, Request
from spyweb.lua.wire import Why
from spyweb.model import Ending, Failure, JobId, Outcome, Run, RunId
from spyweb.ops.dispatcher import OpDispatcher
from spyweb.runs.live import LiveJob

SUCCESS = Ending(outcome=Outcome.SUCCESS)
FAILED = Ending(outcome=Outcome.FAILED, failure=Failure.ERROR, reason="jobs/x.lua:1: boom")
LOST = Ending(outcome=Outcome.LOST, reason="its worker died")
GUILTY = Ending(outcome=Outcome.LOST, reason="its worker died", guilty=True)

_ENDINGS = {
    Why.CANCELLED: Ending(outcome=Outcome.FAILED, failure=Failure.CANCELLED, reason="cancelled"),
    Why.STOPPED: Ending(outcome=Outcome.STOPPED, reason="stopped"),
}


class FakePool(Pool):
    def __init__(self) -> None:
        self.story: list[str] = []
        self.requests: list[Request] = []
        self.endings: dict[JobId, list[Ending]] = {}  # what the next runs of a job come to; then success
        self.held: set[JobId] = set()  # jobs whose runs end only when told
        self._in_flight: dict[RunId, asyncio.Future[Ending]] = {}
        self.broken: dict[str, Callable[[], Exception]] = {}  # chunk → what `check` raises
        self.retired: list[tuple[JobId, int]] = []
        self.discarded: list[tuple[JobId, int]] = []

    async def run(self, request: Request, host: Host, *, is_fresh: bool = False) -> Ending:
        self.story.append(f"run {request.code.job}")
        self.requests.append(request)
        if request.code.job not in self.held:
            planned = self.endings.get(request.code.job)
            return planned.pop(0) if planned else SUCCESS
        future: asyncio.Future[Ending] = asyncio.get_running_loop().create_future()
        self._in_flight[request.run] = future
        return await future

    def finish(self, run: int, ending: Ending = SUCCESS) -> None:
        self._in_flight.pop(RunId(run)).set_result(ending)

    def cancel(self, run: RunId, why: Why) -> None:
        self.story.append(f"cancel {run} {why.name.lower()}")
        if run in self._in_flight:
            self.finish(run, _ENDINGS[why])

    async def check(self, code: Code) -> None:
        error = self.broken.get(code.chunk)
        if error:
            raise error()

    def retire(self, job: JobId, older_than: int) -> None:
        self.retired.append((job, older_than))

    def discard(self, job: JobId, generation: int) -> None:
        self.discarded.append((job, generation))

    def keep_spares(self, code: Code, count: int) -> None:
        self.story.append(f"keep {count} spares of {code.job}")


class FakeMonitors:
    """Carries out monitor jobs, which all succeed."""

    def __init__(self) -> None:
        self.story: list[str] = []
        self.contexts: list[Mapping[str, object]] = []

    async def run(self, job: LiveJob, run: Run, host: OpDispatcher, ctx: Mapping[str, object]) -> Ending:
        self.story.append(f"run {job.id}")
        self.contexts.append(ctx)
        return SUCCESS

    def cancel(self, run: RunId, why: Why) -> None:
        self.story.append(f"cancel {run} {why.name.lower()}")

    def forget(self, job: JobId) -> None:
        self.story.append(f"forget {job}")
