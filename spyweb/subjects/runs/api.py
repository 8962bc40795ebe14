"""Handlers for the record of all runs, and for one manual run that the client watches."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from enum import StrEnum
from typing import Annotated, TypeVar

from aiohttp import web
from msgspec import Meta, Struct
from msgspec.structs import replace

from spyweb.model import Outcome, Run, RunId, TriggerType
from spyweb.store.model.runs import RunFilter
from spyweb.subjects.runs.retries import RetryService
from spyweb.subjects.runs.service import PastRunsService, RunService
from spyweb.subjects.runs.starting import HEADERS, REPEATED, REUSED, key_of, payload_of
from spyweb.subjects.runs.views import RunDetail, run_seen_by
from spyweb.views.runs import LogLine, RunCancelled, RunEnded, RunEvent, RunOps, RunRetried, TaskView, event_to_json
from spyweb.web.access.principal import check_may_see, principal_of
from spyweb.web.answer import BadBody, BadParameter, json_answer, page_answer
from spyweb.web.api.query import MOST, PageQuery, body_of, job_in_path, job_of, list_answer, query_of, run_in_path
from spyweb.web.api.route import LINES, Right, Route
from spyweb.web.api.services import SERVICES, service_of
from spyweb.web.event_streams import UNREAD_S, stream

E = TypeVar("E", bound=StrEnum)


class RunsQuery(PageQuery, frozen=True):
    """Which runs, of which job."""

    outcome: Annotated[str, Meta(description="outcomes, separated by commas")] = ""
    trigger: Annotated[str, Meta(description="types of triggers, separated by commas")] = ""
    since: Annotated[int, Meta(ge=0, le=MOST, description="epoch milliseconds")] | None = None
    until: Annotated[int, Meta(ge=0, le=MOST, description="epoch milliseconds; not included")] | None = None


class WatchedRunQuery(Struct, frozen=True):
    """The way in which a manual run is done."""

    debug: bool = False  # a monitor job keeps nothing
    audit: bool = False  # the end lists the permissions that it has used
    dry_run: bool = False  # nothing is changed, and each skipped effect is logged


@Route("GET", "/api/runs", right=Right.READ, answer=list[Run], query=RunsQuery, of_job=True, is_paged=True)
async def list_runs(request: web.Request) -> web.Response:
    """List runs, newest first, of one job or of all, also of a deleted job.

    With a filter, a page may hold fewer runs than there are, even none: the header `Link` leads to the next page.
    """
    services, query = request.app[SERVICES], query_of(request, RunsQuery)
    job = job_of(request, query.job)
    if query.outcome or query.trigger or query.since is not None or query.until is not None:
        wanted = RunFilter(
            job=job,
            outcomes=_named(Outcome, "outcome", query.outcome),
            triggers=_named(TriggerType, "trigger", query.trigger),
            since_ms=query.since,
            until_ms=query.until,
        )
        before, may_see = RunId(query.before) or None, principal_of(request).may_see
        page = await services[PastRunsService].search(wanted, limit=query.limit, before=before)
        return page_answer(request, [run for run in page.runs if may_see(run.job)], before=page.before)
    if job and not (
        query.before
        or services.catalogue.find_any(job)
        or await services[PastRunsService].newest(job, limit=1, before=None)
    ):
        raise web.HTTPNotFound(text=services.catalogue.no_such_job(job))
    return await list_answer(
        request,
        query,
        lambda most, older: services[PastRunsService].newest(job, limit=most, before=older),
        lambda run: (run.job, run.id),
    )


async def permitted_run(request: web.Request) -> RunId:
    """Return the run in the path.  Raises HTTPForbidden where the client may not see its job."""
    run = run_in_path(request)
    if principal_of(request).jobs:
        found = await service_of(request, PastRunsService).find(run)
        check_may_see(request, found.job if found else "")
    return run


def _named(kind: type[E], parameter: str, text: str) -> list[E]:
    try:
        return [kind(each.strip()) for each in text.split(",") if each.strip()]
    except ValueError as error:
        raise BadParameter(parameter, f"expected some of {', '.join(each.value for each in kind)}") from error


@Route("GET", "/api/runs/{run}", right=Right.READ, answer=RunDetail, of_job=True, at_owner="rather")
async def show_run(request: web.Request) -> web.Response:
    """Show everything about one run: its history, log lines, tasks, traceback, limits, and the runs that followed."""
    run, may_see = await permitted_run(request), principal_of(request).may_see
    return json_answer(run_seen_by(await service_of(request, PastRunsService).detail(run), may_see))


@Route("GET", "/api/runs/{run}/tasks", right=Right.READ, answer=list[TaskView], of_job=True)
async def list_tasks(request: web.Request) -> web.Response:
    """List the ended tasks of a run, in the order of their definition."""
    return json_answer(await service_of(request, PastRunsService).tasks(await permitted_run(request)))


class OpsQuery(Struct, frozen=True):
    """The choices for a list of ops."""

    record: bool = False  # also the record itself, for `spyweb replay`


@Route("GET", "/api/runs/{run}/ops", right=Right.READ, answer=RunOps, query=OpsQuery, of_job=True)
async def list_ops(request: web.Request) -> web.Response:
    """List the recorded ops of a run, in the order of their answers; 404 where it has no record."""
    found = await service_of(request, PastRunsService).ops(await permitted_run(request))
    return json_answer(found if query_of(request, OpsQuery).record else replace(found, record=None))


@Route("POST", "/api/runs/{run}/cancel", right=Right.RUN, answer=RunCancelled, of_job=True, at_owner="must")
async def cancel(request: web.Request) -> web.Response:
    """Cancel a run that is under way or waits.  It is not retried."""
    run = await permitted_run(request)
    return json_answer(RunCancelled(run=run, job=(await service_of(request, RunService).cancel(run)).job))


class RetryBody(Struct, frozen=True):
    """The choices of a retry."""

    anyway: bool = False  # also where the code of the job has changed since the run


@Route(
    "POST",
    "/api/runs/{run}/retry",
    right=Right.RUN,
    answer=RunRetried,
    body=RetryBody | None,
    of_job=True,
    statuses=REUSED,
    headers=HEADERS,
    at_owner="must",
)
async def retry(request: web.Request) -> web.Response:
    """Start a run that retries a failed one, with the same payload; refused (409) where there is nothing to retry.

    Finished tasks are taken over with their results, the others run.  Refused as well where the code of the job has
    changed since, unless `anyway` is true.
    """
    run, key = await permitted_run(request), key_of(request)
    optional: type[RetryBody | None] = RetryBody | None  # type: ignore[assignment]
    body = (await body_of(request, optional) if request.can_read_body else None) or RetryBody()
    retried, is_repeated = await service_of(request, RetryService).retry(run, anyway=body.anyway, key=key)
    answer = json_answer(retried)
    if is_repeated:
        answer.headers[REPEATED] = "true"
    return answer


@Route(
    "POST",
    "/api/jobs/{job}/run",
    right=Right.RUN,
    answer=(LogLine, TaskView, RunEnded),
    query=WatchedRunQuery,
    body=dict[str, object] | None,
    media=LINES,
    at_owner="must",
)
async def run_once(request: web.Request) -> web.StreamResponse:
    """Run a job, and stream its log lines, its tasks and its end."""
    job, query = job_in_path(request), query_of(request, WatchedRunQuery)
    values = await payload_of(request, "the values")
    if not isinstance(values, dict | None):
        raise BadBody(None, "expected an object of values")
    start = service_of(request, RunService).run_once
    events = start(job, debug=query.debug, audit=query.audit, dry_run=query.dry_run, values=values or {})
    return await _watch(request, events)


@Route(
    "POST",
    "/api/jobs/{job}/debug",
    right=Right.RUN,
    answer=(LogLine, TaskView, RunEnded),
    media=LINES,
    at_owner="must",
)
async def debug(request: web.Request) -> web.StreamResponse:
    """Run a job as `spyweb debug` does, and stream its log lines and its end.

    A monitor shows the items that it finds and stores nothing; a job with tasks shows its plan and runs none of them.
    """
    return await _watch(request, service_of(request, RunService).run_once(job_in_path(request), debug=True))


async def _watch(request: web.Request, events: AsyncGenerator[RunEvent, None]) -> web.StreamResponse:
    """Stream the events of a run."""
    async with aclosing(events):
        lines = (event_to_json(event) + b"\n" async for event in events)
        return await stream(request, lines, about_errors={"event": "error"}, unread_s=UNREAD_S)
