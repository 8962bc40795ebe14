"""The page of a job, and what its buttons do."""

from __future__ import annotations

import re

from msgspec import structs

from spyweb.errors import Refused
from spyweb.model import Failure, JobId, Outcome, RunId
from spyweb.store.model.access import Scope
from spyweb.store.model.records import Record
from spyweb.subjects.health.views import Restriction
from spyweb.subjects.jobs.pages import MOST_LINES
from spyweb.subjects.records.views import view_record
from spyweb.views.runs import LogLine, RunEnded, RunEvent, TaskView
from tests.fakes.daemon_service import MARKUP, NOW_MS, PRICES
from tests.fakes.dashboard import dashboard, get_page, make_dashboard_service, page_of, post_form, signed_in, three_rows


async def test_it_draws_the_runs_of_the_chosen_time() -> None:
    page = await page_of("/jobs/prices?span=7d")
    assert '<a href="/jobs/prices?span=7d" aria-current="true">7 d</a>' in page
    assert 'class="dots s"' in page
    assert "60 succeeded" in page
    await page_of("/jobs/prices?span=nonsense")


async def test_a_broken_job_shows_its_problem_and_can_not_be_started() -> None:
    page = await page_of("/jobs/typo")
    assert "the file does not load</h1>" in page
    assert "Errors in the file" in page
    assert "Run now" not in page


async def test_an_unknown_job_offers_what_is_close() -> None:
    page = await page_of("/jobs/pices", status=404)
    assert '<a href="/jobs/prices"><bdi>prices</bdi></a>' in page


async def test_a_key_of_some_jobs_is_told_of_no_other_that_starts_after_them() -> None:
    service = make_dashboard_service()
    async with dashboard(service) as client:
        for path in ("/jobs/backup", "/"):
            assert 'href="/jobs/report"' in (await get_page(client, path))[1]
        limited = await signed_in(service, Scope.READ, jobs=("backup",))
        for path in ("/jobs/backup", "/"):
            status, page = await get_page(client, path, **limited)
            assert (status, 'href="/jobs/report"' in page) == (200, False)


async def test_a_button_does_what_it_says_and_leads_back() -> None:
    service = make_dashboard_service()
    for what, more in (("run", f"&started={service.next_id}"), ("pause", ""), ("resume", "")):
        done = await post_form(service, f"/jobs/prices/{what}", back="/?state=failing&started=3")
        assert done[:2] == (303, f"/?state=failing{more}")
    assert service.story == ["trigger prices", "pause prices", "resume prices"]


async def test_a_refusal_is_a_page_in_plain_words() -> None:
    service = make_dashboard_service()
    service.refusal = Refused("prices is <b>running</b>")
    status, _, page = await post_form(service, "/jobs/prices/run")
    assert status == 409
    assert "Not possible now</h1>" in page
    assert "prices is &lt;b&gt;running&lt;/b&gt;" in page


async def test_the_name_of_a_job_leads_to_it() -> None:
    async with dashboard() as client:
        named = await client.get("/jobs/BackUp?span=7d", allow_redirects=False)
        assert (named.status, named.headers["Location"]) == (302, "/jobs/backup")
        assert (await client.get("/jobs/Backups", allow_redirects=False)).status == 404
        assert (await client.post("/jobs/Backup/pause", allow_redirects=False)).status == 404


async def test_a_job_that_runs_elsewhere_has_no_button_that_would_run_it_here() -> None:
    service = make_dashboard_service()
    service.details.is_elsewhere = True
    page = await page_of("/jobs/prices", service)
    assert "Run now" not in page
    assert "Dry run" not in page
    assert "Pause" in page


async def test_a_whole_file_is_shown_line_by_line_and_no_other() -> None:
    page = await page_of("/jobs/prices/source?line=2")
    assert re.findall(r'id="L(\d)"', page) == ["1", "2"]
    assert '<span class="kw">local</span>' in page
    assert '<span id="L2" class="here">' in page
    for file in ("../../etc/passwd", "config.toml"):
        await page_of(f"/jobs/prices/source?file={file}", status=404)
    await page_of("/jobs/prices/source?line=x", status=400)


async def tried(events: list[RunEvent]) -> tuple[str, list[str]]:
    service = make_dashboard_service()
    service.watched = events
    status, _, page = await post_form(service, "/jobs/prices/try", back="/jobs/prices")
    assert status == 200
    return page, service.story


def ended(**changes: object) -> RunEnded:
    known = {"job": JobId("prices"), "run": RunId(9), "outcome": Outcome.SUCCESS, "duration_ms": 12}
    return RunEnded(**{**known, **changes})  # type: ignore[arg-type]


async def test_a_trial_shows_what_was_logged_and_found() -> None:
    line = LogLine(level="info", text=MARKUP, at_ms=NOW_MS)
    tasks = [TaskView(task=MARKUP, workflow="", status=status, message=MARKUP) for status in ("running", "failed")]
    page, story = await tried([line, *tasks, ended(result={"items": [MARKUP]})])
    assert "Succeeded after 12\N{NO-BREAK SPACE}ms</h1>" in page
    assert story[0] == "debug prices", "it has pages, so it is a monitor"
    assert story[-1] == "closed"
    assert "<script>alert" not in page
    assert page.count("&lt;script&gt;") >= 4
    assert 'name="back" value="/jobs/prices"' in page


async def test_a_trial_that_fails_says_why() -> None:
    failed = ended(outcome=Outcome.FAILED, failure=Failure.ERROR, reason=MARKUP, traceback=MARKUP)
    page, _ = await tried([failed])
    assert "Failed after" in page
    assert "Nothing logged." in page
    assert page.count("&lt;script&gt;") >= 2


async def test_a_trial_that_logs_much_is_cut_off() -> None:
    lines: list[RunEvent] = [LogLine(level="info", text="x", at_ms=NOW_MS)] * (MOST_LINES + 3)
    page, _ = await tried([*lines, ended()])
    assert page.count('data-as="exact"') == MOST_LINES
    assert "3\N{NO-BREAK SPACE}further lines" in page


async def test_it_shows_what_it_keeps_and_what_it_found() -> None:
    service = make_dashboard_service()
    await service.state.put("job:prices", MARKUP[:20].encode(), MARKUP.encode(), None)
    record = Record(timestamp_ns=NOW_MS * 1_000_000, job=PRICES, hash=b"", fields={"title": MARKUP}, url=MARKUP)
    service.kept = [view_record(record)]
    page = await page_of("/jobs/prices", service)
    assert "Stored values" in page
    assert ">Records</h2>" in page


async def test_the_overview_gives_a_reason_once_and_its_search_filters_both_lists() -> None:
    page = await page_of("/")
    assert page.count("jobs/backup.lua:3: disk") == 1
    assert re.search(r'<li id="a-backup" data-state="failing">', page)
    found = await page_of("/?q=prices")
    assert re.search(r'<section id="attention"[^>]* hidden>', found)
    assert re.search(r'<li id="a-backup"[^>]* hidden>', found)
    assert "`" not in page.partition("<main")[2]


async def test_a_job_that_is_quarantined_says_so_in_the_list_and_on_its_page() -> None:
    rows = [structs.replace(row, restriction=Restriction("quarantined", MARKUP)) for row in three_rows()]
    service = make_dashboard_service(rows)
    assert '<strong class="warn">quarantined</strong> · every' in await page_of("/", service)
    assert '<strong class="warn">Quarantined</strong>: ' in await page_of("/jobs/prices", service)


async def test_a_page_shows_the_run_that_its_button_has_started() -> None:
    page = await page_of("/?q=prices&started=1234")
    assert '<a href="/runs/1234">Run 1,234</a> was requested.' in page
    assert 'name="back" value="/?q=prices"' in page
    assert "was requested" not in await page_of("/?started=x")


async def test_a_run_starts_with_values_and_a_payload_of_a_form() -> None:
    service, path = make_dashboard_service(), "/jobs/prices/start"
    done = await post_form(service, path, values='{"region": "eu"}', payload=" [1, null] ", back="/jobs/prices")
    assert done[:2] == (303, f"/jobs/prices?started={service.next_id}")
    assert (await post_form(service, path, values="", payload=""))[0] == 303
    assert service.story == ["trigger prices with [1, None] and {'region': 'eu'}", "trigger prices"]


async def test_a_form_that_can_not_be_read_is_shown_again_with_what_was_expected() -> None:
    service = make_dashboard_service()
    for name, text, reason in (
        ("values", "[1]", "Values: expected a JSON object, such as {&#34;host&#34;: &#34;web1&#34;}"),
        ("values", '{"a":' * 70 + "1" + "}" * 70, "Values: it is nested deeper than"),
        ("values", '{"a": [' + "1E9," * 15_000 + "1]}", "Values: values has "),
        ("payload", MARKUP, "Payload: it is not JSON: "),
        ("payload", '"' + "x" * 65_536 + '"', "Payload: it has 65538 bytes, at most 65536 are allowed"),
    ):
        status, _, page = await post_form(service, "/jobs/prices/start", None, **{name: text})
        assert (status, reason in page) == (422, True), page.partition('class="bad" role')[2][:200]
        assert f'aria-describedby="wrong-{name}"' in page
        assert "data-mark" not in page  # its address is that of the form: nothing follows it
        assert '<details id="job-start" class="card" open>' in page
    assert service.story == []


async def test_the_page_of_a_check_shows_its_latency_and_how_long_its_certificate_is_valid() -> None:
    (row,) = (row for row in three_rows() if row.job.id == PRICES)
    assert row.job.last
    last = structs.replace(row.job.last, result='{"cert_days":1,"latency":85}')
    row = structs.replace(row, job=structs.replace(row.job, check="http", last=last))
    service = make_dashboard_service([row])
    service.live.get(PRICES).spec = structs.replace(service.live.get(PRICES).spec, check="http")
    page = await page_of("/jobs/prices", service)
    assert ">Latency</h2>" in page
    assert 'aria-label="Latencies from' in page
    assert 'valid for another <strong class="bad">1\N{NO-BREAK SPACE}day</strong>' in page
    assert "<bdi>prices</bdi>: up" in page.lower()
