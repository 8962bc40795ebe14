"""Every way past the ops: what a job may not reach, it does not reach, and one clear line says so."""

from __future__ import annotations

import json
import re
import socket
from asyncio import get_running_loop
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from urllib.parse import quote

import pytest
from msgspec.structs import replace

from spyweb.clock import RealClock
from spyweb.daemon.build import execute, open_server
from spyweb.errors import OpError, ScriptError
from spyweb.model import Ending, Failure, JobId, Outcome
from spyweb.ops.dispatcher import OpDispatcher
from spyweb.ops.network.client import HttpClient, open_client
from spyweb.ops.network.resolver import Address, ask_system
from spyweb.permissions.hosts import read_net
from spyweb.permissions.policy import Audit, Grants, Policy, policy_of
from spyweb.reload.swap import make_live_job
from spyweb.runs.runner import by_hand
from spyweb.settings.load import examine_settings, load_settings
from spyweb.settings.sections import HttpSettings
from spyweb.specs.discover import scan
from tests.fakes.command import spyweb
from tests.fakes.monitor_project import MonitorProject, Observer, open_project
from tests.fakes.ops import make_call, make_world
from tests.fakes.repository import read
from tests.fakes.socks_server import open_socks_server
from tests.fakes.web_server import WebServer

HOSTS = {"a.test": "127.0.0.1", "b.test": "127.0.0.1", "away.test": "127.0.0.2"}


def lookup(host: str) -> tuple[Address, ...]:
    if host not in HOSTS:
        return ask_system(host)
    return (Address(socket.AF_INET, HOSTS[host]),)


@pytest.fixture
async def client() -> AsyncIterator[HttpClient]:
    async with open_client(HttpSettings(timeout_ms=5_000), RealClock(), lookup=lookup) as client:
        yield client


def net(*items: str) -> Policy:
    return policy_of(Grants(net=read_net(items)))


async def ask(client: HttpClient, policy: Policy, op: str, *arguments: object) -> Sequence[object]:
    return list(await OpDispatcher(make_call(make_world(http=client), policy=policy)).op(op, arguments))


async def get(client: HttpClient, policy: Policy, url: str) -> dict[str, object]:
    """Return the response, or the error that is returned; what is raised is raised."""
    response, error = await ask(client, policy, "http_get", url.encode())
    found = response or error
    assert isinstance(found, dict)
    return found


async def refused(client: HttpClient, policy: Policy, url: str) -> str:
    with pytest.raises(OpError, match="may not reach") as raised:
        await get(client, policy, url)
    return str(raised.value)


# Requests


async def test_a_permitted_name_is_fetched_and_another_is_not(server: WebServer, client: HttpClient) -> None:
    assert (await get(client, net("a.test"), server.url("/hello", "a.test")))["status"] == 200
    assert await refused(client, net("a.test"), server.url("/hello", "b.test")) == (
        f"http_get: 'prices' may not reach b.test:{server.port}: "
        'add "b.test" to [jobs.prices.permissions] net in config.toml'
    )
    assert server.story == ["GET /hello"]


@pytest.mark.parametrize("spelling", ["127.0.0.1", "127.1", "2130706433", "0x7f.1", "0177.0.0.1", "①②⑦.⓪.⓪.①", "[::1]"])
async def test_no_spelling_of_an_address_is_a_name(server: WebServer, client: HttpClient, spelling: str) -> None:
    await refused(client, net("a.test", "*.test", "192.0.2.0/24"), server.url("/hello", spelling))
    assert server.story == []


@pytest.mark.parametrize("spelling", ["127.0.0.1", "0x7f.1", "0X7F000001"])  # aiohttp knows no others
async def test_every_spelling_is_permitted_by_its_network(server: WebServer, client: HttpClient, spelling: str) -> None:
    for policy in (net("127.0.0.0/8"), net("127.0.0.1")):
        assert (await get(client, policy, server.url("/hello", spelling)))["status"] == 200


async def test_a_redirect_that_leads_away_gives_nil_and_a_kind(server: WebServer, client: HttpClient) -> None:
    for host in ("b.test", "127.0.0.1"):
        url = server.url(f"/redirect-to?url={quote(server.url('/hello', host), safe='')}", "a.test")
        error = await get(client, net("a.test"), url)
        assert error["kind"] == "permission"
        assert str(error["error"]).startswith(f"http_get: 'prices' may not reach {host}:{server.port}: add ")
    assert server.story == ["GET /redirect-to"] * 2


async def test_a_redirect_to_a_name_that_leads_away_gives_nil_too(server: WebServer, client: HttpClient) -> None:
    url = server.url(f"/redirect-to?url={quote(server.url('/hello', 'away.test'), safe='')}", "127.0.0.1")
    error = await get(client, net("127.0.0.1/32"), url)
    assert error["kind"] == "permission"
    assert "which is 127.0.0.2" in str(error["error"])
    assert server.story == ["GET /redirect-to"]


async def test_a_redirect_within_what_is_permitted_is_followed(server: WebServer, client: HttpClient) -> None:
    url = server.url(f"/redirect-to?url={quote(server.url('/hello', 'b.test'), safe='')}", "a.test")
    assert (await get(client, net("*.test"), url))["status"] == 200


async def test_a_name_counts_by_the_address_that_it_leads_to(server: WebServer, client: HttpClient) -> None:
    inside = net("127.0.0.1/32")
    assert (await get(client, inside, server.url("/hello", "a.test")))["status"] == 200
    assert "reach away.test:" in await refused(client, inside, server.url("/hello", "away.test"))


async def test_a_name_whose_address_has_changed_is_refused(server: WebServer) -> None:
    addresses = ["127.0.0.1", "127.0.0.2"]

    def changing(host: str) -> tuple[Address, ...]:
        return (Address(socket.AF_INET, addresses[0]),)

    async with open_client(HttpSettings(timeout_ms=5_000), RealClock(), lookup=changing) as client:
        inside = net("127.0.0.1/32")
        assert (await get(client, inside, server.url("/hello", "one.test")))["status"] == 200
        del addresses[0]
        await refused(client, inside, server.url("/hello", "two.test"))


async def test_a_connection_kept_by_one_policy_serves_no_other(server: WebServer, client: HttpClient) -> None:
    """The wide job's connection to the name is open; the narrow one must not ride on it."""
    url = server.url("/hello", "a.test")
    assert (await get(client, Policy(), url))["status"] == 200
    assert (await get(client, net("127.0.0.1/32"), url))["status"] == 200
    await refused(client, net("127.0.0.2/32"), url)
    await refused(client, net("b.test"), url)


async def test_a_host_header_can_not_name_what_the_address_may_not(server: WebServer, client: HttpClient) -> None:
    for headers, ok in (({b"Host": b"b.test"}, False), ({b"hOST": b"a.test"}, True)):
        arguments = (server.url("/hello", "a.test").encode(), headers)
        if ok:
            response, _ = await ask(client, net("a.test"), "http_get", *arguments)
            assert response
        else:
            with pytest.raises(OpError, match="may not reach b"):
                await ask(client, net("a.test"), "http_get", *arguments)


# Proxies


async def through(client: HttpClient, policy: Policy, proxy: str, url: str) -> None:
    options = {b"url": url.encode(), b"proxy": proxy.encode()}
    response, error = await ask(client, policy, "http_request", options)
    assert response, error


@pytest.mark.parametrize("scheme", ["socks5", "socks5h", "socks4", "socks4a"])
async def test_a_proxy_and_what_is_behind_it_must_both_be_permitted(client: HttpClient, scheme: str) -> None:
    async with open_socks_server() as proxy:
        address = proxy.url(scheme).replace("127.0.0.1", "a.test")
        for items in (["a.test"], ["b.test"], ["127.0.0.1/32"]):
            with pytest.raises(OpError, match="http_request: 'prices' may not reach"):
                await through(client, net(*items), address, "http://b.test/")
        assert proxy.asked == []


async def test_a_network_permits_a_proxy_only_at_its_address(server: WebServer, client: HttpClient) -> None:
    url = server.url("/hello", "b.test")
    async with open_socks_server() as proxy:
        here = proxy.url("socks5").replace("127.0.0.1", "a.test")
        away = proxy.url("socks5").replace("127.0.0.1", "away.test")
        await through(client, net("127.0.0.1/32", "b.test"), here, url)
        with pytest.raises(OpError, match=r"reach away\.test:\d+, which is 127\.0\.0\.2"):
            await through(client, net("127.0.0.1/32", "b.test"), away, url)


async def test_an_http_proxy_is_checked_as_well(server: WebServer, client: HttpClient) -> None:
    target, proxy = "http://nowhere.example/hello", server.url("", "a.test")
    for items in (["nowhere.example"], ["a.test"], ["nowhere.example", "127.0.0.2/32"]):
        with pytest.raises(OpError, match="may not reach"):
            await through(client, net(*items), proxy, target)
    assert server.story == []
    await through(client, net("nowhere.example", "127.0.0.1/32"), proxy, target)


@pytest.mark.parametrize(
    ("op", "others"),
    [("tls_probe", [1]), ("tcp_probe", [1]), ("ping", []), ("dns_query", [b"A", {b"server": b"HOST"}])],
)
async def test_only_permitted_hosts_are_probed(client: HttpClient, op: str, others: list[object]) -> None:
    for policy, host in ((net("b.test"), b"a.test"), (net("127.0.0.1/32"), b"away.test"), (net("a.test"), b"127.1")):
        more = [{b"server": host} if isinstance(each, dict) else each for each in others]
        with pytest.raises(OpError, match=f"{op}: 'prices' may not reach"):
            await ask(client, policy, op, b"a.test" if op == "dns_query" else host, *more)


async def test_a_certificate_is_fetched_from_permitted_hosts(client: HttpClient) -> None:
    found, message = await ask(client, net("a.test"), "tls_probe", b"a.test", 1)
    assert found is None
    assert "could not connect" in str(message)


# Jobs


@asynccontextmanager
async def opened(root: Path, config: str) -> AsyncIterator[MonitorProject]:
    (root / "config.toml").write_text(config)
    async with open_project(root) as project:
        yield project


async def run(project: MonitorProject, lua: str, name: str = "x") -> Ending:
    """Run a script job once."""
    project.save(f"jobs/{name}.lua", lua)
    found = scan(project.root, load_settings(project.root, environ={}, flags={}))
    assert not found.problems, found.problems
    job = make_live_job(found.jobs[JobId(name)])
    project.runtime.live.add(job)
    observer = Observer(get_running_loop().create_future())
    await project.runtime.runner.start_by_hand(job, by_hand(observer))
    return await observer.over


async def test_a_monitor_s_page_is_a_host_like_any_other(tmp_path: Path) -> None:
    async with opened(tmp_path, '[permissions]\nnet = ["shop.test"]\n') as project:
        project.shop()
        ending = await project.run()
        assert ending.outcome is Outcome.FAILED
        assert ending.reason.startswith("fetch: 'shop' may not reach 127.0.0.1:")
        assert project.site.story == []


async def test_a_monitor_s_hook_can_not_choose_another_address(tmp_path: Path) -> None:
    async with opened(tmp_path, '[permissions]\nnet = ["127.0.0.1"]\n') as project:
        project.shop("function before_fetch(r) r.url = 'http://127.0.0.2:1/' return r end")
        ending = await project.run()
        assert "'shop' may not reach 127.0.0.2:1" in ending.reason


async def test_a_webhook_is_asked_for_when_it_is_made(tmp_path: Path) -> None:
    async with opened(tmp_path, '[jobs.shop.permissions]\nnet = ["127.0.0.1"]\n') as project:
        project.shop(webhook='{ enabled = true, url = "http://hook.test/" }')
        ending = await project.run()
        assert ending.reason.startswith("webhook: 'shop' may not reach hook.test:80: add")
        assert await project.messages() == []
        project.shop(webhook='{ enabled = true, url = "{site}/hook" }')
        project.load()
        assert (await project.run()).outcome is Outcome.SUCCESS  # and says what it could not say before
        (message,) = await project.messages()
        assert b"Lamp" in message.payload


async def test_a_webhook_is_asked_for_again_when_it_is_sent(tmp_path: Path) -> None:
    async with opened(tmp_path, "") as project:
        project.shop(webhook='{ enabled = true, url = "{site}/hook" }')
        assert (await project.run()).outcome is Outcome.SUCCESS
        job = project.runtime.live.find(JobId("shop"))
        assert job is not None
        job.spec = replace(job.spec, policy=net("elsewhere.test"))
        await project.runtime.outbox_sender.send_due(job.id, 5)
        (message,) = await project.runtime.store.outbox.unsent(job.id, 10)
        assert "webhook: 'shop' may not reach 127.0.0.1" in message.error
        assert "POST /hook" not in project.site.story


async def test_a_notification_is_asked_for(tmp_path: Path) -> None:
    async with opened(tmp_path, "[permissions]\nnotify = false\n") as project:
        project.shop(notification="{ enabled = true }")
        ending = await project.run()
        assert ending.reason.startswith("notify: 'shop' may not show notifications: set notify = true")
        assert await project.messages() == []


async def test_the_sql_views_show_what_the_policy_permits(tmp_path: Path) -> None:
    lua = """
        store_set("own", "1")
        local function count(what) return db_query("SELECT count(*) AS n FROM " .. what)[1].n end
        return count("lua_user") .. " " .. count("records") .. " " .. count("seen")
    """
    async with opened(tmp_path, "[jobs.narrow.permissions]\nglobal_store = false\n") as project:
        project.shop()
        await project.run()
        await run(project, 'global_store_set("g", "1")', "writer")
        wide = await run(project, lua, "wide")
        narrow = await run(project, lua, "narrow")
        assert (wide.result, narrow.result) == (b"2 2 2", b"1 0 0"), narrow.reason


async def test_a_vm_is_told_of_permitted_variables_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPYWEB_ONE", "1")
    monkeypatch.setenv("SPYWEB_TWO", "2")
    both = 'return (env_get("ONE") or "-") .. (env_get("SPYWEB_TWO") or "-")'
    config = "".join(f'[jobs.{name}.permissions]\nenv = ["ONE", "UNSET"]\n' for name in ("narrow", "narrow2"))
    async with opened(tmp_path, config) as project:
        assert (await run(project, both, "wide")).result == b"12"
        ending = await run(project, both, "narrow")
        assert ending.failure is Failure.ERROR
        assert ending.reason.endswith(
            "env_get: 'narrow' may not read SPYWEB_TWO: add \"TWO\" to [jobs.narrow.permissions] env in config.toml"
        )
        ending = await run(project, 'return env_get("SPYWEB_ONE") .. tostring(env_get("UNSET"))', "narrow2")
        assert ending.result == b"1nil"


async def test_files_are_executed_under_the_policy_before_they_live(tmp_path: Path) -> None:
    """What stands outside of functions in a monitor's files runs when they are loaded."""
    async with opened(tmp_path, "[permissions]\ndb = false\n") as project:
        project.shop('db_exec("CREATE TABLE t (a)")')
        ending = await project.run()
        assert "db_exec: 'shop' may not use the database" in ending.reason


async def test_a_delegated_task_has_the_state_of_permitted_agents_only(tmp_path: Path) -> None:
    lua = """
        task("t"):delegate_to("web"):command(function() state.set("k", 1) return true end):build()
    """
    for items, outcome in (('["agent:local"]', Outcome.FAILED), ('["agent:web"]', Outcome.SUCCESS)):
        root = tmp_path / outcome.value
        root.mkdir()
        async with opened(root, f"[permissions]\nstate = {items}\n") as project:
            ending = await run(project, lua)
            assert ending.outcome is outcome, ending.reason
            assert await project.runtime.store.values.get("state@web", b"k") == (
                1 if outcome is Outcome.SUCCESS else None
            )


async def test_a_monitor_s_files_are_proven_under_its_policy(tmp_path: Path) -> None:
    async with opened(tmp_path, "[permissions]\ndb = false\n") as project:
        project.shop('db_exec("CREATE TABLE t (a)")')
        job, runtime = project.load(), project.runtime
        with pytest.raises(ScriptError, match="db_exec: 'shop' may not use the database"):
            await execute(runtime.pool, runtime.world, runtime.job_logs, job.spec, job.code)


async def test_endpoints_have_the_policy_of_the_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPYWEB_ONE", "1")
    (tmp_path / "server").mkdir()
    (tmp_path / "server/init.lua").write_text("""
        function get:sql() return db_query("SELECT 1")[1]["1"] end
        function get:variable() return env_get("ONE") end
        function get:stored() global_store_set("k", "v") return "fine" end
    """)
    config = "[permissions]\nglobal_store = false\n[server.permissions]\ndb = false\nenv = []\nglobal_store = true\n"
    async with opened(tmp_path, config) as project, AsyncExitStack() as stack:
        server = await open_server(stack, project.runtime)
        await server.reloader.look()
        assert server.endpoints.version is not None

        async def ask_for(name: str) -> str:
            request = {"method": "GET", "path": f"/api/v/{name}", "route": name, "is_public": False, "path_args": []}
            answered = await server.endpoints.answer({**request, "query": {}, "headers": {}, "body": b""})
            return str(answered)

        assert "fine" in await ask_for("stored")
        for name in ("sql", "variable"):
            await ask_for(name)
    failures = (tmp_path / "server/error.log").read_text()
    assert "db_query: the server may not use the database: set db = true in [server.permissions]" in failures
    assert 'env_get: the server may not read SPYWEB_ONE: add "ONE" to [server.permissions] env' in failures


def test_tests_have_the_policy_of_what_they_test(tmp_path: Path) -> None:
    for folder in ("jobs", "server"):
        (tmp_path / folder).mkdir()
    refused = """
        local ok, why = pcall(db_query, "SELECT 1")
        spyweb.assert_eq(ok, false)
        assert(string.find(why, "%s", 1, true), why)
    """
    (tmp_path / "config.toml").write_text("[permissions]\ndb = false\n")
    of_job, of_server = (refused % f"{who} may not use the database" for who in ("'x'", "the server"))
    (tmp_path / "jobs/x.lua").write_text(f"function test_it() {of_job} end")
    (tmp_path / "server/init.lua").write_text(
        'function get:sql() local _, why = pcall(db_query, "SELECT 1") return why end'
    )
    of_handler = """
        local response = http_get("http://127.0.0.1:" .. SERVER_PORT .. "/api/v/sql")
        assert(string.find(response.body, "the server may not use the database", 1, true), response.body)
    """
    (tmp_path / "server/tests.lua").write_text(
        f"function test_it() {of_server} end\nfunction test_handler() {of_handler} end"
    )
    answer = spyweb("test", root=tmp_path)
    assert (answer.code, answer.lines[-1].split(";")[0]) == (0, "test result: ok. 3 passed"), answer.out


# The command line


def test_an_audited_run_ends_with_a_block_that_permits_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPYWEB_ONE", "1")
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs/x.lua").write_text("""
        local one = env_get("SPYWEB_ONE")
        state.set { scope = "orders", key = "k", value = one }
        state.get("k")
        global_store_set("g", "1")
        fs_append("a.txt", one)
        http_get("http://127.0.0.1:1/")
        return db_query("SELECT 1 AS n")[1].n
    """)
    answer = spyweb("run", "x", "--audit", root=tmp_path)
    assert answer.code == 0, answer
    assert answer.lines[-9:] == [
        "[jobs.x.permissions]",
        'net = ["127.0.0.1:1"]',
        "exec = []",
        'files = ["job"]',
        'env = ["ONE"]',
        'state = ["orders", { scope = "agent:local", read_only = true }]',
        "db = true",
        "global_store = true",
        "notify = false",
    ]
    (tmp_path / "config.toml").write_text("\n".join(answer.lines[-9:]))
    assert spyweb("run", "x", root=tmp_path).code == 0  # what the block permits is enough
    last = json.loads(spyweb("run", "x", "--audit", "-o", "json", root=tmp_path).lines[-1])
    assert last["permissions"] == "\n".join(answer.lines[-9:])
    assert "permissions" not in json.loads(spyweb("run", "x", "-o", "json", root=tmp_path).lines[-1])


async def test_an_audit_of_a_monitor_has_its_addresses(tmp_path: Path) -> None:
    async with opened(tmp_path, "") as project:
        project.shop(webhook='{ enabled = true, url = "http://hook.test/" }', notification="{ enabled = true }")
        job = project.load()
        observer = Observer(get_running_loop().create_future(), audit=Audit())
        await project.runtime.runner.start_by_hand(job, by_hand(observer))
        assert (await observer.over).outcome is Outcome.SUCCESS
        assert observer.audit is not None
        block = observer.audit.block("shop")
        assert project.site.url.removeprefix("http://") in block
        assert '"hook.test:80"' in block
        assert 'notify = ["desktop"]' in block


def test_check_shows_what_is_needed_and_what_is_permitted(tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs/x.lua").write_text('http_get("https://a.test/") http_get("https://b.test/")')
    (tmp_path / "config.toml").write_text('[permissions]\nnet = ["a.test"]\n')
    answer = spyweb("check", "--permissions", root=tmp_path)
    assert answer.code == 1
    assert [line.split() for line in answer.lines] == [
        ["job", "key", "functions", "literals", "may", "own", "settings"],
        ["x", "net", "http_get", "a.test,", "b.test", "(refused)", "a.test"],
    ]
    (tmp_path / "config.toml").write_text("")
    answer = spyweb("check", "--permissions", "-o", "json", root=tmp_path)
    assert answer.code == 0
    assert answer.json == [
        {
            "job": "x",
            "key": "net",
            "functions": ["http_get"],
            "literals": ["a.test", "b.test"],
            "refused": [],
            "may": ["*"],
            "own": None,
        }
    ]


def test_the_settings_that_the_page_shows_are_read_as_they_stand(tmp_path: Path) -> None:
    found = re.search(r"```toml\n(.*?)```", read("docs/how-to/permissions.md"), re.DOTALL)
    assert found
    (tmp_path / "config.toml").write_text(found[1])
    settings, problems = examine_settings(tmp_path, environ={}, flags={})
    assert list(problems) == []
    assert policy_of(settings.permissions).items("net") == [["*.example.com", "10.0.0.0/8"]]
    assert settings.server.permissions.host("www.example.com", 443) is not None
