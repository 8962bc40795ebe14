"""The page of a run, and the list of all."""

from __future__ import annotations

import re

from msgspec import structs

from spyweb.model import Outcome, RunState, TriggerType
from spyweb.store.model.access import Scope
from spyweb.subjects.runs.views import CauseStep
from spyweb.subjects.runs.words import causes_of, facts_of, said_of, task_bars, whole_of
from spyweb.web.pages.charts import WaterfallBar
from tests.fakes.daemon_service import BACKUP, MARKUP, PRICES, make_run, make_run_detail
from tests.fakes.dashboard import dashboard, get_page, make_dashboard_service, page_of, post_form, signed_in


async def test_a_run_that_is_not_there_is_said_so() -> None:
    async with dashboard() as client:
        status, page = await get_page(client, "/runs/77")
        assert status == 404
        assert "There is no run 77</h1>" in page
        assert (await get_page(client, "/runs/x"))[0] == 400


async def test_runs_are_listed_with_filters() -> None:
    service = make_dashboard_service()
    past = service.past
    async with dashboard(service) as client:
        status, page = await get_page(client, "/runs?job=prices&outcome=failed&before=40")
        assert status == 200
        assert (past.searched[-1].job, past.searched[-1].outcomes) == ("prices", [Outcome.FAILED])
        assert 'href="/runs?job=prices&amp;before=1&amp;outcome=failed"' in page
        assert re.search(r'href="/runs\?job=prices&amp;outcome=failed" aria-current="true">Failed', page)
        await get_page(client, "/runs?outcome=nonsense")
        assert past.searched[-1].outcomes == []
        assert (await get_page(client, "/runs?before=x"))[0] == 400


async def test_a_run_that_waits_for_its_turn_has_not_begun_in_1970() -> None:
    service = make_dashboard_service()
    waiting = make_run(41, state=RunState.WAITING, outcome=None, due_ms=None, started_ms=None, ended_ms=None)
    service.known_runs = [waiting]
    for address in ("/runs", "/jobs/prices"):
        page = await page_of(address, service)
        assert "1970" not in page
        assert '<a href="/runs/41">not yet</a>' in page


async def test_a_key_of_some_jobs_is_told_of_no_other_before_or_after_a_run() -> None:
    service = make_dashboard_service()
    service.known_runs = [make_run(8, job=BACKUP)]
    async with dashboard(service) as client:
        _, page = await get_page(client, "/runs/8")
        assert [f'href="/runs/{other}"' in page for other in (1, 99)] == [True, True]
        limited = await signed_in(service, Scope.READ, jobs=("backup",))
        status, page = await get_page(client, "/runs/8", **limited)
    assert status == 200
    assert [f'href="/runs/{other}"' in page for other in (1, 99)] == [False, False]


FAILED = make_run(7, outcome=Outcome.FAILED, reason="no")


def test_tasks_are_bars_beside_their_run() -> None:
    detail = make_run_detail(FAILED)
    bars = task_bars(detail)
    assert [(bar.tone, bar.took_ms) for bar in bars] == [("ok", 600), ("bad", 100), ("off", None)]
    assert (bars[2].span, bars[2].words) == (None, "skipped")
    assert whole_of(detail) == 1_234
    assert bars[1].span == WaterfallBar(x=0.4862, width=0.081)
    assert task_bars(make_run_detail(make_run(3, started_ms=None, outcome=Outcome.MISSED))) == []


async def test_the_recorded_ops_of_a_run_are_bars_on_its_page_in_the_order_of_their_calls() -> None:
    service = make_dashboard_service()
    service.known_runs = [FAILED, make_run(6)]
    page = await page_of("/runs/7", service)

    assert re.findall(r'<code title="(http_get|store_get|sleep)', page) == ["http_get", "store_get", "sleep"]
    assert re.findall(r'<rect class="(\w+)" x="([\d.]+)"', page[page.index(">Ops<") :]) == [
        ("bad", "0.081"),
        ("ok", "0.1621"),
        ("off", "0.2431"),
    ]
    assert "error: no route to" in page
    assert MARKUP not in page
    assert re.search(r"<small>10\sops</small>", page)
    assert "<code>spyweb replay 7</code>" in page
    assert ">Ops<" not in await page_of("/runs/6", service), "a run without a record says nothing of ops"


def test_attempts_stand_for_the_retries_that_they_are() -> None:
    retry = CauseStep(kind=TriggerType.RETRY, words="attempt 2, of run 6")
    detail = make_run_detail(FAILED, causes=[CauseStep(kind=TriggerType.SCHEDULE, words="due"), retry])
    words = [cause.words for cause in causes_of(detail)]
    assert words[:3] == ["due", "attempt 1: this one", "attempt 2: succeeded"]
    assert words[3].startswith("then ")
    assert said_of(detail) == "Attempt 1 of 2."
    alone = make_run_detail(FAILED, causes=[retry], attempts=[], followers=[], is_there=False)
    assert [cause.words for cause in causes_of(alone)] == ["attempt 2, of run 6"]
    assert said_of(alone) == "The job was removed."


def test_facts_stand_beside_their_limits() -> None:
    run = make_run(7, outcome=Outcome.FAILED, storage_errors=3, http_status=404, items_found=5, note="odd", attempt=2)
    facts = {fact.name: fact for fact in facts_of(make_run_detail(run))}
    assert facts["time"].words.replace("\N{NO-BREAK SPACE}", " ") == "20.4 s of 1 m"
    assert facts["time"].tone == "bad"
    assert facts["memory"].words.replace("\N{NO-BREAK SPACE}", " ") == "at most 64 MB"
    assert (facts["storage errors"].words, facts["page"].words, facts["note"].words) == ("3", "status 404", "odd")
    assert facts["items"].words == "5, of them 0 new"
    assert facts["attempt"].words == "2"
    assert "late" not in facts
    assert facts["began"].at_ms == run.started_ms


async def test_a_failed_run_is_retried_from_its_first_open_task_and_asks_where_its_code_has_changed() -> None:
    service = make_dashboard_service()
    service.known_runs = [FAILED, make_run(8)]
    page = re.sub(r"\s+", " ", await page_of("/runs/7", service))
    assert '<button form="do" formaction="/runs/7/retry" class="main" data-plain>Retry from upload' in page
    assert "Retry" not in await page_of("/runs/8", service)
    assert (await post_form(service, "/runs/7/retry"))[:2] == (303, "/runs/9")
    service.retries.changed = "jobs/a.lua, shared/b.lua"
    status, _, asks = await post_form(service, "/runs/7/retry")
    assert status == 200
    assert "jobs/a.lua, shared/b.lua changed since this run. The results of 1 task are taken over unchanged." in asks
    assert (await post_form(service, "/runs/7/retry", sure="yes"))[:2] == (303, "/runs/9")
    limited = await signed_in(service, Scope.READ)
    assert (await post_form(service, "/runs/7/retry", limited, sure="yes"))[0] == 403
    assert service.story == ["retry run 7", "retry run 7 anyway"]


async def test_the_plan_of_a_run_is_drawn_level_by_level_on_its_page_and_on_that_of_its_job() -> None:
    service = make_dashboard_service()
    service.known_runs = [FAILED]
    for address in ("/runs/7", "/jobs/prices"):
        page = await page_of(address, service)
        assert re.findall(r'<ul aria-label="(Level \d)">', page) == ["Level 1", "Level 2", "Level 3"]
        assert re.findall(r"<small>after (\w+)</small>", page)[-1] == "upload"
        assert "not run" in page


async def test_the_pages_of_a_checks_runs_list_what_it_has_measured() -> None:
    service = make_dashboard_service()
    service.known_runs = [make_run(41, result='{"cert_days":2,"chain_ok":true,"ip":"::1","latency":85.4,"odd":[1]}')]
    service.live.get(PRICES).spec = structs.replace(service.live.get(PRICES).spec, check="http")
    _, _, table = (await page_of("/runs/41", service)).partition("Result</h2>")
    shown = re.findall(r'<dt class="mono">(.*?)</dt><dd class="(.*?)">(.*?)\xa0(.*?)</dd>', table)
    texts = [("chain_ok", "", "true", ""), ("ip", "", "::1", ""), ("latency", "", "85.4", "ms")]
    assert shown == [("cert_days", "bad", "2", ""), *texts, ("odd", "", "[1]", "")]
    for address in ("/runs", "/jobs/prices/strip"):
        assert "85 ms, certificate 2 days" in await page_of(address, service)
