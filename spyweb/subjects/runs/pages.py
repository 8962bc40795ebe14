"""The page of a run, and the list of all."""

from __future__ import annotations

from contextlib import suppress

from aiohttp import web

from spyweb.errors import Absent, Refused
from spyweb.events.happenings import lines_in_file
from spyweb.model import Outcome, Run, RunId
from spyweb.store.model.runs import RunFilter
from spyweb.subjects.runs import words
from spyweb.subjects.runs.retries import RetryService
from spyweb.subjects.runs.service import PastRunsService, RunService
from spyweb.subjects.runs.views import run_seen_by
from spyweb.web.access.principal import Right
from spyweb.web.api.query import ListQuery, run_in_path
from spyweb.web.pages.page import Action, Asked, DashboardPage, PageMissing, Question, Shown, coloured, lead_to
from spyweb.words import counted, cut

PAGE = 50  # runs of a list
LONGEST_LABEL = 40  # characters of a task's name on a button
WORDS = {Outcome.SUCCESS: "Succeeded"}
OUTCOMES = [("", "All"), *((each.value, WORDS.get(each, each.value.capitalize())) for each in Outcome)]

CANCEL = Question(
    title="Cancel this run?",
    words="The run stops where it is and counts as failed. Values that it has stored stay.",
    button="Cancel the run",
)


class RunsPageQuery(ListQuery, frozen=True):
    """The filter of the list."""

    outcome: str = ""


@DashboardPage("runs/{run}", "run.html", place="jobs", of_job=True, anew=("run:{run}",), at_owner="rather")
async def show_run_page(asked: Asked) -> Shown:
    """Show everything about a run."""
    number = run_in_path(asked.request)
    await find_run(asked, number)
    detail = run_seen_by(await asked.services[PastRunsService].detail(number), asked.principal.may_see)
    whole_ms, spec = words.whole_of(detail), asked.services.catalogue.spec(detail.run.job)
    ops = None
    with suppress(Absent):
        ops = await asked.services[PastRunsService].ops(number)
    values = {
        "detail": detail,
        "run": detail.run,
        "mark": words.drawn(detail.mark),
        "tone": words.tone_of(detail.mark),
        "said": words.said_of(detail),
        "is_open": words.is_open(detail),
        "bars": words.task_bars(detail),
        "ops": ops,
        "op_bars": words.op_bars(ops, whole_ms) if ops else (),
        "plan": detail.plan,
        "retry": await retry_label(asked, detail.run),
        "scale": [whole_ms * step // 4 for step in range(5)],
        "cpu_share": min(1.0, detail.run.cpu_ms / detail.took_ms) if detail.took_ms else None,
        "causes": words.causes_of(detail),
        "facts": words.facts_of(detail),
        "measured": words.measured(detail.run) if spec and spec.check else [],
        "error_lines": await coloured(detail.source),
        "lines": lines_in_file(detail.run.job, detail.log.lines),
    }
    return Shown(title=f"{detail.words}: {detail.name}, run {number}", values=values, is_live=words.is_open(detail))


async def retry_label(asked: Asked, run: Run) -> str:
    """Return the words of the button that retries a run; empty where it can't be retried."""
    with suppress(Refused):
        first = (await asked.services[RetryService].prospect(run)).first
        return f"Retry from {cut(first, LONGEST_LABEL)}" if first else "Retry"
    return ""


async def find_run(asked: Asked, number: RunId) -> Run:
    """Return a run that the client may see.  Raises PageMissing where there is none."""
    run = await asked.services[PastRunsService].find(number)
    if run is None or not asked.principal.may_see(run.job):
        raise PageMissing(f"There is no run {number}")
    return run


@DashboardPage("runs", "runs.html", place="jobs", of_job=True)
async def list_runs(asked: Asked) -> Shown:
    """List runs, newest first: of all jobs or of one, of all outcomes or of one."""
    query = asked.query(RunsPageQuery)
    outcomes = [Outcome(query.outcome)] if query.outcome in set(Outcome) else []
    wanted = RunFilter(job=asked.job_of_list(query.job), outcomes=outcomes)
    found = await asked.services[PastRunsService].search(wanted, limit=PAGE, before=RunId(query.before) or None)
    spec_of = asked.services.catalogue.spec
    name = asked.name_of(wanted.job) if wanted.job else None
    values = {
        "job": wanted.job,
        "name": name,
        "runs": [words.show_run(run, spec_of(run.job)) for run in found.runs if asked.principal.may_see(run.job)],
        "is_of_all": wanted.job is None,
        "name_of": asked.name_of,
        "outcomes": asked.chips(query, "outcome", OUTCOMES),
        **asked.places(query, found.before),
    }
    return Shown(title=f"Runs of {name}" if name else "Runs", values=values)


async def ask_before_retry(asked: Asked) -> Question | None:
    found = await asked.services[RetryService].prospect(await find_run(asked, run_in_path(asked.request)))
    if not found.changed:
        return None
    taken_over = counted(found.taken_over, "task")
    return Question(
        title="Retry although the code has changed?",
        words=f"{found.changed} changed since this run. The results of {taken_over} are taken over unchanged.",
        button="Retry anyway",
    )


@Action("runs/{run}/retry", right=Right.RUN, of_job=True, question=ask_before_retry, at_owner="must")
async def retry(asked: Asked) -> web.Response:
    """Start a run that retries a failed one, and lead to its page."""
    number = run_in_path(asked.request)
    await find_run(asked, number)
    started, _ = await asked.services[RetryService].retry(number, anyway=asked.form.get("sure") == "yes")
    return lead_to(asked.to("runs", started.run or number))


@Action("runs/{run}/cancel", right=Right.RUN, of_job=True, question=CANCEL, at_owner="must")
async def cancel(asked: Asked) -> web.Response:
    """Cancel a run that is under way or waits."""
    number = run_in_path(asked.request)
    await find_run(asked, number)
    await asked.services[RunService].cancel(number)
    return lead_to(asked.to("runs", number))
