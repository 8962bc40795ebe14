"""The how-to pages: what they show is taken from them as it stands, with the addresses of a local site, and works."""

from __future__ import annotations

import json
import re
import ssl
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest
from aiohttp import web

from spyweb.daemon.check import check_project
from spyweb.daemon.commands.run import DebugPlan, show_plan
from spyweb.lua.endings import show_value
from spyweb.model import Failure, JobId, Outcome, Run
from spyweb.store.model.entries import job_namespace
from spyweb.views.runs import describe_details
from tests.fakes.certificates import self_signed
from tests.fakes.monitor_project import MonitorProject
from tests.fakes.repository import code_blocks, file_of, files_of, read
from tests.fakes.socks_server import open_socks_server
from tests.fakes.web_server import open_proxy, open_web_server

pytestmark = pytest.mark.asyncio(loop_scope="module")

PAGES = (
    "README",
    "watch-a-page",
    "watch-a-value",
    "be-notified-of-new-items",
    "pagination",
    "retry-with-proxies",
    "json-api",
    "webhooks",
    "certificates",
    "configuration-files",
    "rate-limit",
    "queue-on-sql",
    "deployment-pipeline",
    "fan-out",
    "verified-backup",
    "write-jobs-for-assistants",
)
NOTHING: Mapping[str, str] = {}
ARTICLES = """
<article class="item"><h2><a href="/1">A release</a></h2><b class="price">90 €</b></article>
<article class="item"><h2><a href="/2">Security notes</a></h2><b class="price">120 €</b></article>
<article class="item"><h2><a href="/3">The weather</a></h2><b class="price">5 €</b></article>
"""
RELEASE = '<article class="item"><h2><a href="/4">Another release</a></h2><b class="price">7 €</b></article>'


def path_of(page: str) -> str:
    return "README.md" if page == "README" else f"docs/how-to/{page}.md"


def local(text: str, project: MonitorProject, replaced: Mapping[str, str]) -> str:
    """With the addresses of the local site; `replaced` is for a page that needs more than one of them."""
    for old, new in replaced.items():
        assert old in text
        text = text.replace(old, new)
    for address in ("https://discord.example.org", "https://example.org"):
        text = text.replace(address, project.site.url)
    return text


def place(
    project: MonitorProject, page: str, name: str, number: int = 0, replaced: Mapping[str, str] = NOTHING
) -> None:
    """A file of the page, for the job that this test is about."""
    text = local(file_of(path_of(page), name, number), project, replaced)
    if name == "config.toml":
        first, rest = text.split("\n", 1)
        assert first.startswith("name = ")
        text = f'name = "{project.name}"\n{rest}'
    folder = f"jobs/{project.name}"
    project.save(f"{folder}/{name}" if name in ("config.toml", "hooks.lua") else f"{folder}.lua", text)


async def bodies(project: MonitorProject) -> list[dict[str, object]]:
    """Of the webhooks that are to be sent; notifications are taken out too."""
    found = await project.messages()
    return [json.loads(message.payload) for message in found if message.target.address]


@pytest.mark.parametrize("page", PAGES)
async def test_every_file_of_a_page_passes_the_check(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NTFY_TOPIC", "my-alerts-7f3a9c")
    versions: dict[str, list[str]] = {}
    for name, text in files_of(path_of(page)):
        versions.setdefault(name, []).append(text)
    assert versions
    for number in range(max(map(len, versions.values()))):
        for name, texts in versions.items():
            path = tmp_path / str(number) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(texts[min(number, len(texts) - 1)])
        channels = [block for block in code_blocks(read(path_of(page)), "toml") if block.startswith("[channels.")]
        for block in channels[:1]:
            (tmp_path / str(number) / "config.toml").write_text(block)
        assert await check_project(tmp_path / str(number)) == []


async def test_a_page_is_watched_by_keywords(project: MonitorProject) -> None:
    project.site.pages["/articles"] = ARTICLES
    place(project, "watch-a-page", "config.toml")
    assert (await project.run()).outcome is Outcome.SUCCESS
    first, second = await project.records()
    assert (first["title"], first["link"]) == ("A release", f"{project.site.url}/1")
    assert second["title"] == "Security notes"
    assert await bodies(project) == [], "the first cycle is silent"
    project.site.pages["/articles"] = ARTICLES + RELEASE
    assert (await project.run()).outcome is Outcome.SUCCESS
    (body,) = await bodies(project)
    assert body["item_count"] == 1
    assert (await project.run()).outcome is Outcome.SUCCESS
    assert await bodies(project) == []


async def test_hooks_change_what_is_kept_and_told(project: MonitorProject) -> None:
    project.site.pages["/articles"] = ARTICLES
    place(project, "watch-a-page", "config.toml")
    place(project, "watch-a-page", "hooks.lua")
    assert (await project.run()).outcome is Outcome.SUCCESS
    assert [record["price"] for record in await project.records()] == ["90 €", "5 €"]
    assert project.site.asked[0][1]["Accept-Language"] == "en"
    assert await project.messages() == []
    project.site.pages["/articles"] = ARTICLES.replace("90 €", "80 €")
    await project.run()
    assert len(await project.messages()) == 2


async def test_a_page_that_is_gone_is_told_as_the_page_says(project: MonitorProject) -> None:
    project.site.pages["/articles"] = ARTICLES
    place(project, "watch-a-page", "config.toml")
    await project.run()
    assert describe_details(await latest(project)) == "3 items, 2 new"
    assert await bodies(project) == []
    del project.site.pages["/articles"]
    for _ in range(3):
        await project.run()
    row = await latest(project)
    assert describe_details(row).startswith("404, 0 items; not as expected: http status 404 in 3 runs in a row")


async def test_each_cycle_fetches_the_next_page_and_the_same_again_when_it_could_not(project: MonitorProject) -> None:
    project.site.pages["/search"] = '<p class="listing"><h3>x</h3></p>'
    place(project, "pagination", "config.toml")
    place(project, "pagination", "hooks.lua")
    for _ in range(6):
        await project.run()
    assert project.site.story == [f"GET /search?page={page}" for page in (1, 2, 3, 4, 5, 1)]

    del project.site.pages["/search"]
    project.site.asked.clear()
    project.site.pages["/search"] = "no listings: that was the last"
    for _ in range(2):
        await project.run()
    assert project.site.story == ["GET /search?page=2", "GET /search?page=1"]


async def test_a_cursor_may_be_a_token(project: MonitorProject) -> None:
    project.site.pages["/search"] = '<nav data-next="abc"></nav>'
    place(project, "pagination", "config.toml")
    place(project, "pagination", "hooks.lua", 1)
    await project.run()
    await project.run()
    project.site.pages["/search"] = "the last page"
    await project.run()
    await project.run()
    assert project.site.story == ["GET /search", "GET /search?after=abc", "GET /search?after=abc", "GET /search"]


PROXIES = {"http://user:secret@proxy1.example.org:8080": "http", "socks5://proxy2.example.org:1080": "socks5"}


async def test_one_proxy_after_another_is_taken(project: MonitorProject) -> None:
    project.site.pages["/prices"] = '<p class="price"><span>5</span></p>'
    async with open_proxy() as http, open_socks_server() as socks:
        addresses = dict(zip(PROXIES, (f"http://user:secret@127.0.0.1:{http.port}", socks.url("socks5")), strict=True))
        place(project, "retry-with-proxies", "config.toml", replaced=addresses)
        for _ in range(4):
            assert (await project.run()).outcome is Outcome.SUCCESS
        assert (len(project.site.asked), len(socks.asked)) == (4, 2)  # the other proxy keeps its connection
        assert "Proxy-Authorization: Basic" in http.story[0]
    assert await project.records() == [{"price": "5"}]


async def test_a_fetch_of_ones_own_goes_through_the_proxy_that_works(project: MonitorProject) -> None:
    project.site.pages["/prices"] = '<p class="price"><span>5</span></p>'
    async with open_socks_server() as socks:
        place(project, "retry-with-proxies", "config.toml")
        addresses = {"http://proxy1.example.org:8080": "http://127.0.0.1:1"}
        addresses["socks5://proxy2.example.org:1080"] = socks.url("socks5")
        place(project, "retry-with-proxies", "hooks.lua", replaced=addresses)
        assert (await project.run()).outcome is Outcome.SUCCESS
    assert await project.records() == [{"price": "5"}]
    (line,) = project.lines
    assert line.startswith("warn attempt 1 through http://127.0.0.1:1: ")
    assert line.endswith("(proxy)")


async def test_without_any_proxy_the_cycle_fails_with_the_hooks_words(project: MonitorProject) -> None:
    place(project, "retry-with-proxies", "config.toml")
    replaced = {
        "http://proxy1.example.org:8080": "http://127.0.0.1:1",
        "socks5://proxy2.example.org:1080": "http://127.0.0.1:1",
    }
    place(project, "retry-with-proxies", "hooks.lua", replaced={**replaced, "sleep(2000": "sleep(2"})
    ending = await project.run()
    assert (ending.outcome, ending.reason) == (Outcome.FAILED, "no proxy got through")
    assert len(project.lines) == 6


async def test_items_come_out_of_json(project: MonitorProject, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPYWEB_API_TOKEN", "token")
    releases = [
        {"name": "One", "tag": "1.0", "url": "https://x/1"},
        {"name": "Two", "tag": "2.0", "url": "https://x/2"},
    ]
    project.site.pages["/api/releases"] = json.dumps(releases)
    place(project, "json-api", "config.toml")
    place(project, "json-api", "hooks.lua")
    assert (await project.run()).outcome is Outcome.SUCCESS
    assert await project.records() == [
        {"name": "One", "version": "1.0", "link": "https://x/1"},
        {"name": "Two", "version": "2.0", "link": "https://x/2"},
    ]
    project.site.pages["/api/releases"] = json.dumps([{**releases[0], "name": "Renamed"}])
    await project.run()
    assert len(await project.records()) == 2

    project.site.pages["/api/releases"] = "<html>"
    assert (await project.run()).outcome is Outcome.SUCCESS
    assert any("no JSON: " in line for line in project.lines)


async def test_a_script_asks_an_api(project: MonitorProject) -> None:
    place(project, "json-api", "status.lua")
    project.site.pages["/api/status"] = '{"state": "up"}'
    assert (await project.run()).outcome is Outcome.SUCCESS
    project.site.pages["/api/status"] = '{"state": "down"}'
    assert (await project.run()).reason == "it is down"


async def test_discord_and_slack_are_told_in_their_words(project: MonitorProject) -> None:
    told = []
    for number in range(2):
        project.renew()
        project.site.pages["/articles"] = RELEASE
        place(project, "webhooks", "config.toml")
        place(project, "webhooks", "hooks.lua", number)
        await project.run()
        assert await bodies(project) == [], "the first cycle is silent"
        project.site.pages["/articles"] = ARTICLES
        assert (await project.run()).outcome is Outcome.SUCCESS
        (message,) = [each for each in await project.messages() if each.target.address]
        assert message.headers == (("x-team", "news"),)
        assert message.target.address == f"{project.site.url}/api/webhooks/1/abc"
        told.append(json.loads(message.payload))
    discord, slack = told
    assert discord["content"].endswith(": 3 new")
    assert discord["embeds"][0] == {"title": "A release", "url": f"{project.site.url}/1", "description": ""}
    assert slack["blocks"][0]["text"]["text"].endswith(f"\n<{project.site.url}/3|The weather>")


def tls_until(moment: datetime, folder: Path) -> ssl.SSLContext:
    """A server's side, with a certificate that ends then."""
    file = folder / f"{moment:%m-%d}.pem"
    file.write_bytes(self_signed("127.0.0.1", moment - timedelta(days=100), moment))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    return context


async def test_certificates_are_watched(project: MonitorProject, tmp_path: Path) -> None:
    now = datetime.now(UTC)
    async with (
        open_web_server(tls_until(now + timedelta(days=90), tmp_path)) as good,
        open_web_server(tls_until(now + timedelta(days=3, hours=1), tmp_path)) as old,
    ):
        tell = {"https://chat.example.org/hook": f"{project.site.url}/hook"}
        hosts = tell | {'"example.org", "mail.example.org:993"': f'"127.0.0.1:{good.port}"'}
        place(project, "certificates", "certificates.lua", replaced=hosts)
        assert (await project.run()).outcome is Outcome.SUCCESS

        project.renew()
        hosts = tell | {
            '"example.org", "mail.example.org:993"': f'"127.0.0.1:{good.port}", "127.0.0.1:{old.port}", "127.0.0.1:1"'
        }
        place(project, "certificates", "certificates.lua", replaced=hosts)
        ending = await project.run()
    assert (ending.outcome, ending.failure) == (Outcome.FAILED, Failure.ERROR)
    first, second = ending.reason.split("; ")
    assert first.startswith(f"127.0.0.1:{old.port}: 3 days left, until {(now + timedelta(days=3, hours=1)):%Y-%m-%d}")
    assert second.startswith("127.0.0.1:1: ")
    assert project.site.story == ["POST /hook"]
    assert json.loads(project.site.asked[0][2])["text"] == f"Certificates: {ending.reason}"


async def test_a_call_that_may_be_made_so_often_fails_with_a_reason(project: MonitorProject) -> None:
    project.site.pages = {"/": "<p>fine"}
    place(project, "rate-limit", "api.lua")
    assert (await project.run()).result == 200
    project.renew()
    place(project, "rate-limit", "api.lua", replaced={"https://example.org": "http://127.0.0.1:1"})
    ending = await project.run()
    assert (ending.outcome, ending.failure) == (Outcome.FAILED, Failure.ERROR)
    assert ending.reason.startswith("could not connect to 127.0.0.1:1: ")


async def test_an_answer_is_kept_and_a_failure_is_not(project: MonitorProject) -> None:
    project.site.pages = {"/users/123": web.Response(status=503)}
    place(project, "rate-limit", "user.lua")
    assert (await project.run()).reason == "status 503"
    project.site.pages = {"/users/123": web.json_response({"name": "Ann"})}
    assert (await project.run()).result == b"Ann"
    assert (await project.run()).result == b"Ann"
    assert project.site.story == ["GET /users/123"] * 2


async def test_no_two_workers_take_the_same_target(project: MonitorProject) -> None:
    project.site.pages = {"/a": "<title>A</title>", "/b": web.Response(status=500, text="<title>B</title>")}
    place(project, "queue-on-sql", "config.toml")
    place(project, "queue-on-sql", "hooks.lua")
    assert (await project.run()).outcome is Outcome.SUCCESS
    assert sorted(project.site.story) == ["GET /a", "GET /b"]
    assert sorted(record["title"] for record in await project.records()) == ["A", "B"]
    await project.run()
    assert len(project.site.story) == 2  # nothing is due yet


async def tasks_of(project: MonitorProject) -> dict[str, str]:
    """How each task of the latest run ended: its status, and its message."""
    run = (await latest(project)).id
    rows = (await project.runtime.store.tasks.of_runs([run]))[run]
    return {row.name: f"{row.status}: {row.message}" if row.message else str(row.status) for row in rows}


async def test_a_release_is_rolled_out_once_and_back_when_it_does_not_answer(project: MonitorProject) -> None:
    site = project.site
    site.pages |= {"/releases/latest": '{"version": "2.0"}', "/hooks/deploy": ""}
    place(project, "deployment-pipeline", "deploy.lua", replaced={'"3s"': '"3ms"'})
    assert (await project.run()).outcome is Outcome.SUCCESS
    assert await tasks_of(project) == {
        "find": "success: 2.0", "roll_out": "success: 2.0 in place of none",
        "verify": "success: it says 2.0", "record": "success",
    }  # fmt: skip
    assert site.story == ["GET /releases/latest", "PUT /live", "GET /live", "POST /hooks/deploy"]
    assert json.loads(site.asked[-1][2]) == {"text": "live: 2.0"}

    site.asked.clear()
    assert (await project.run()).outcome is Outcome.SUCCESS
    assert site.story == ["GET /releases/latest"]
    assert [status.partition(":")[0] for status in (await tasks_of(project)).values()] == ["success"] + ["skipped"] * 3

    site.pages["/releases/latest"] = '{"version": "2.1"}'
    site.series["/live"] = [web.Response(text="{}"), *(web.Response(status=503) for _ in range(5))]
    ending = await project.run()
    assert (ending.outcome, ending.reason) == (Outcome.FAILED, "verify: GET /live: status 503 (1 of 4 tasks)")
    assert site.pages["/live"] == '{"version":"2.0"}'
    assert (await tasks_of(project))["record"] == "skipped: stopped after verify"
    assert json.loads(site.asked[-1][2]) == {"text": "failed: GET /live: status 503"}
    assert "error rolling back: GET /live: status 503" in project.lines


async def test_the_tasks_of_a_job_may_come_from_a_module(project: MonitorProject) -> None:
    make = "return function(name) return task(name):command(function(this) return true, this.name end):build() end"
    project.save("lib/steps.lua", make)
    last = "task('b'):depends_on(made):command(function(this) return true, this.name end)"
    project.save(f"jobs/{project.name}.lua", f"local made = require('lib.steps')('a') {last}")
    assert (await project.run()).outcome is Outcome.SUCCESS
    assert await tasks_of(project) == {"a": "success: a", "b": "success: b"}


async def test_the_plan_of_the_deployment_is_the_one_its_page_shows(
    project: MonitorProject, capsys: pytest.CaptureFixture[str]
) -> None:
    place(project, "deployment-pipeline", "deploy.lua")
    ending = await project.run(debug=True)
    capsys.readouterr()
    show_plan(msgspec.convert(show_value(ending.result), DebugPlan))
    shown = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    (page,) = re.findall(r"```text\n(.*?)```", read(path_of("deployment-pipeline")), re.DOTALL)
    assert shown == page.splitlines()
    assert project.site.story == []


async def test_fifty_addresses_are_asked_ten_at_a_time(project: MonitorProject) -> None:
    project.site.pages |= {f"/shop/{number}": "fine" for number in range(1, 51)}
    place(project, "fan-out", "addresses.lua")
    assert (await project.run()).outcome is Outcome.SUCCESS
    assert re.fullmatch(r"50 answer, the slowest in \d+ ms", (await latest(project)).result)
    assert len(set(project.site.story)) == 50
    project.site.pages |= {"/shop/7": web.Response(status=500), "/shop/40": web.Response(status=404)}
    assert (await project.run()).reason == "2 of 50: /shop/7: status 500; /shop/40: status 404"


async def test_a_version_comes_to_one_host_then_to_the_others_and_each_is_finished(project: MonitorProject) -> None:
    place(project, "fan-out", "rollout.lua")
    assert (await project.run()).outcome is Outcome.SUCCESS
    assert await tasks_of(project) == {"first": "success: web1", "others": "success: 4 more"}
    story = project.site.story
    assert story[:4] == ["PUT /web1/traffic", "PUT /web1/version", "GET /web1/version", "PUT /web1/traffic"]
    assert len(story) == 20

    project.site.series["/web3/version"] = [web.Response(status=507)]
    ending = await project.run()
    assert (ending.outcome, ending.reason) == (Outcome.FAILED, "others: web3: version: status 507 (1 of 2 tasks)")
    assert (await tasks_of(project))["others"] == "failed: web3: version: status 507"
    assert [project.site.pages[f"/web{number}/traffic"] for number in range(1, 6)] == ["on", "on", "off", "on", "on"]

    project.site.series["/web1/version"] = [web.Response(status=507)]
    await project.run()
    assert await tasks_of(project) == {
        "first": "failed: web1: version: status 507", "others": "skipped: stopped after first",
    }  # fmt: skip


async def test_a_backup_counts_once_it_has_been_brought_back(project: MonitorProject) -> None:
    quickly = {":retries(2)": ":retries(0)", '"5s"': '"5ms"'}
    place(project, "verified-backup", "backup.lua", replaced=quickly)
    assert (await project.run()).outcome is Outcome.SUCCESS
    assert (await tasks_of(project))["restore"] == "success: 0 orders of 0, 0 of 0"
    backup = project.name
    project.renew()
    project.save(f"jobs/{project.name}.lua", "db_exec([[INSERT INTO orders VALUES (1, 'lamp', 30), (2, 'desk', 120)]])")
    assert (await project.run()).outcome is Outcome.SUCCESS

    project.name = backup
    assert (await project.run()).outcome is Outcome.SUCCESS
    assert (await tasks_of(project))["restore"] == "success: 2 orders of 2, 150 of 150"
    (address,) = [path for path in project.site.pages if path.startswith("/backups/orders-")]

    project.site.series[address] = [web.Response(status=201), web.Response(text="half of i")]
    ending = await project.run()
    assert ending.reason == "compare: what is there is not what was sent (1 of 5 tasks)"
    assert (await tasks_of(project))["compare"] == "failed: what is there is not what was sent"

    project.renew()
    place(project, "verified-backup", "backup-age.lua")
    await project.run()
    assert (await latest(project)).result == "2 orders, 0 hours ago"


async def fail_until_open(project: MonitorProject, script: str) -> Run:
    """Five failures of a circuit breaker, and the run after them that does not ask."""
    project.save(f"jobs/{project.name}.lua", script)
    project.site.pages["/status"] = web.Response(status=500)
    for _ in range(5):
        ending = await project.run()
        assert (ending.outcome, ending.reason) == (Outcome.FAILED, "status 500")
    ending = await project.run()
    assert (ending.outcome, len(project.site.asked)) == (Outcome.SKIPPED, 5)
    return await latest(project)


async def latest(project: MonitorProject) -> Run:
    (row,) = await project.runtime.store.runs.list(JobId(project.name), limit=1)
    return row


async def test_the_breaker_of_the_first_page_says_that_it_does_not_ask(project: MonitorProject) -> None:
    script = next(text for text in re.findall(r"```lua\n(.*?)```", read("README.md"), re.DOTALL) if "COOLDOWN" in text)
    row = await fail_until_open(project, local(script, project, NOTHING))
    assert row.reason == "open: no request"


async def test_a_circuit_breaker_opens_asks_once_after_its_cooldown_and_closes(project: MonitorProject) -> None:
    address = {'env_get("CHECK_URL")': f'"{project.site.url}/status"'}
    row = await fail_until_open(project, local(read("jobs/check-api.lua"), project, address))
    assert re.fullmatch(r"open: next request in (60|5\d) s", row.reason)

    namespace, entries = job_namespace(JobId(project.name)), project.runtime.store.values
    opened_at = await entries.get(namespace, b"opened_at")
    assert isinstance(opened_at, bytes)
    await entries.set(namespace, b"opened_at", b"%d" % (int(opened_at) - 60))
    assert (await project.run()).reason == "status 500"
    assert project.lines == ["warn open for 60 s after 6 failures in a row"]

    await entries.set(namespace, b"opened_at", b"%d" % (int(opened_at) - 60))
    project.site.pages["/status"] = "up"
    assert (await project.run()).outcome is Outcome.SUCCESS
    assert project.lines == ["info it answers again"]
    assert re.fullmatch(r"\d+ ms", (await latest(project)).result)
    assert await entries.get(namespace, b"failures") is None


TROUBLE = read("docs/how-to/job-does-not-run.md")
MISTAKES = {
    "jobs/x.luau": "log('x')",
    "jobs/sub/a.lua": "log('x')",
    "jobs/page/hooks.lua": "",
    "jobs/broken.lua": '-- /// job\n-- every = 5m\n-- ///\nlog("x")',
    "jobs/typo.lua": '-- /// job\n-- evry = "1m"\n-- ///\nlog("x")',
    "jobs/syntax.lua": 'log("x\n',
    "jobs/lost.lua": '-- /// job\n-- after = "fetch"\n-- ///\nlog("x")',
    "jobs/dashes.lua": '--- /// job\n--- every = "5s"\n--- ///\nlog("x")',
    "jobs/idle.lua": "function main() end",
}


async def test_the_page_about_jobs_that_do_not_run_quotes_what_check_says(tmp_path: Path) -> None:
    for name, text in MISTAKES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    problems = await check_project(tmp_path)
    assert len({each.file for each in problems}) == len(MISTAKES)
    said = [f"{each.key}: {each.reason}" if each.key else each.reason for each in problems]
    assert [each for each in said if f"`{each}`" not in TROUBLE] == []


FAILS = (
    ("loop", "timeout: jobs/loop.lua:5: timed out", '-- /// job\n-- timeout = "1s"\n-- ///\n\nwhile true do end'),
    (
        "mem",
        "memory: jobs/mem.lua:5: not enough memory",
        "\n\n\n\nlocal t = {} for i = 1, 1e8 do t[i] = tostring(i) end",
    ),
    ("nilcall", "attempt to index a nil value (local 'r')", "local r = http_get('http://127.0.0.1:1/') log(r.status)"),
    ("isfalse", "returned false", "return false"),
    ("exec", "[jobs.exec.permissions] exec in config.toml", "exec.run({ '/bin/true' })"),
)


@pytest.mark.parametrize(("name", "said", "script"), FAILS)
async def test_the_page_about_jobs_that_do_not_run_quotes_how_runs_fail(
    project: MonitorProject, name: str, said: str, script: str
) -> None:
    project.name = name
    project.save(f"jobs/{name}.lua", script)
    assert (await project.run()).outcome is Outcome.FAILED
    assert said in describe_details(await latest(project))
    assert f"{said}`" in TROUBLE


async def test_the_jobs_of_the_page_for_assistants_work(project: MonitorProject) -> None:
    project.site.pages |= {"/status.json": '{"free_gb": 9}', "/orders.json": '[{"id": 1}, {"id": 2}]', "/build": "2.1"}
    ended: dict[str, str] = {}
    for name in ("disk", "orders", "sites", "release"):
        project.name = name
        place(project, "write-jobs-for-assistants", f"{name}.lua")
        await project.run()
        ended[name] = describe_details(await latest(project))
    assert ended == {
        "disk": "9 GB left", "orders": "2 new", "sites": "/shop: status 404; /blog: status 404", "release": "",
    }  # fmt: skip
    assert await tasks_of(project) == {"build": "success: built", "publish": "success: published 2.1"}

    project.renew()
    project.site.pages["/articles"] = ARTICLES.replace("A release", "A new release")
    place(project, "write-jobs-for-assistants", "config.toml")
    place(project, "write-jobs-for-assistants", "hooks.lua")
    assert (await project.run()).outcome is Outcome.SUCCESS
    assert [record["title"] for record in await project.records()] == ["A new release", "Security notes", "The weather"]
