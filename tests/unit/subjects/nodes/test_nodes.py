"""The nodes of a cluster, for people and programs: who is up, who runs what, and changes of that."""

from __future__ import annotations

import re
from contextlib import nullcontext
from pathlib import Path

import pytest
from msgspec.structs import replace

from spyweb.errors import Refused
from spyweb.store.model.access import Scope
from spyweb.subjects.health.exposition import write
from spyweb.subjects.health.views import find_all_problems, find_warnings, pool_words, view_health
from spyweb.subjects.nodes.service import NodesService
from spyweb.subjects.nodes.views import NodeChange
from spyweb.web.app import tcp_app
from tests.fakes.client import client_of
from tests.fakes.command import spyweb
from tests.fakes.daemon_service import PRICES, FakeDaemonService, make_metrics, make_vitals, two_live_jobs
from tests.fakes.daemon_socket import serve_daemon_socket
from tests.fakes.dashboard import get_page, make_dashboard_service, page_of, post_form, signed_in
from tests.fakes.nodes import BETA, FakeCluster, make_node, two_on_record


def service_over(cluster: FakeCluster | None) -> NodesService:
    return NodesService(live=two_live_jobs(), cluster=cluster)


async def test_each_node_is_listed_once_by_its_latest_start_with_what_it_runs() -> None:
    service = service_over(two_on_record(folder=b"2"))
    listed = {view.name: (view.state, view.slots, view.jobs, view.differs, view.is_me) for view in await service.list()}
    assert listed == {
        "alpha": ("alive", 1, 0, False, True),
        "beta": ("alive", 2, 2, True, False),
        "gamma": ("dead", 1, 0, False, False),
    }
    assert await service_over(None).list() == []


async def test_a_job_names_its_node_only_where_there_are_several() -> None:
    cluster = two_on_record()
    service, (job, _) = service_over(cluster), two_live_jobs()
    owner = service.owner_of(job.slot)
    assert (owner and owner.id, service.node_of(job)) == (BETA, "beta")
    assert cluster.last
    cluster.last = replace(cluster.last, living=cluster.last.living[1:])
    assert service.node_of(job) == ""
    assert service_over(None).node_of(job) == service_over(FakeCluster(cluster.record)).node_of(job) == ""


@pytest.mark.parametrize(
    ("name", "change", "done", "refusal"),
    [
        ("beta", NodeChange.DRAIN, ["drain 2"], ""),
        ("beta", NodeChange.RESUME, ["resume 2"], ""),
        ("gamma", NodeChange.FORGET, ["forget 3", "forget 4"], ""),
        ("beta", NodeChange.FORGET, [], "beta is alive: stop it first"),
        ("gamma", NodeChange.DRAIN, [], "gamma is dead: it takes jobs once it is started again"),
        ("bata", NodeChange.DRAIN, [], "no node is named 'bata': did you mean 'beta'?"),
        ("x" * 99, NodeChange.DRAIN, [], f"no node is named '{'x' * 80}': `spyweb nodes` lists them"),
    ],
)
async def test_a_node_is_changed_on_record_or_it_says_why_not(
    name: str, change: NodeChange, done: list[str], refusal: str
) -> None:
    cluster = two_on_record()
    with pytest.raises(Refused, match=f"^{re.escape(refusal)}$") if refusal else nullcontext():
        await service_over(cluster).change(name, change)
    assert cluster.record.story == done


async def test_one_that_ends_just_now_and_a_daemon_without_a_cluster_say_so() -> None:
    cluster = two_on_record()
    cluster.record.answers = False
    with pytest.raises(Refused, match="beta has just ended"):
        await service_over(cluster).change("beta", NodeChange.DRAIN)
    with pytest.raises(Refused, match="alone on its database"):
        await service_over(None).change("beta", NodeChange.DRAIN)


async def test_health_and_metrics_tell_of_pools_without_a_node_of_dead_nodes_and_of_clocks() -> None:
    cluster = two_on_record()
    cluster.offset_ms, cluster.wanted = 3_500, frozenset({"", "label:gpu"})
    service = service_over(cluster)
    await service.look()
    vitals = make_vitals(cluster=service.vitals(), now_ms=500)
    texts = {problem.code: problem.text for problem in find_warnings(vitals)}
    assert texts["nodes"] == "no node is up for jobs of labels gpu: they do not run"
    assert texts["dead nodes"] == "nodes were declared dead: gamma"
    assert texts["clock"] == "this machine's clock is 3.5s away from the database's"
    health = view_health(vitals, [])
    assert health.cluster == service.vitals()
    meters = await make_metrics(vitals=vitals).measure(health)
    lines = write(meters, "", compressed=False)[0].decode().splitlines()
    found = dict(line.split() for line in lines if line.startswith(("spyweb_nodes ", "spyweb_slots", "spyweb_beat")))
    assert found == {
        "spyweb_nodes": "2.0",
        "spyweb_slots_owned": "1.0",
        "spyweb_slots_unowned": "2.0",
        "spyweb_beat_age_seconds": "1.0",
    }
    cluster.trouble = "connection refused"
    away = find_all_problems(make_vitals(cluster=service.vitals(), now_ms=12_500))
    assert [each.text for each in away] == ["PostgreSQL has not answered for 13s: soon nothing runs here"]
    await service_over(None).look()
    assert service_over(None).vitals() is None
    assert [pool_words(pool) for pool in ("", "node:fra", "label:a,b")] == ["every node", "node fra", "labels a,b"]


async def test_only_an_administrator_changes_nodes_by_the_api_and_by_the_page() -> None:
    service = make_dashboard_service()
    service.nodes.cluster = cluster = two_on_record()
    browser = await signed_in(service, Scope.ADMIN)
    status, where, _ = await post_form(service, "/nodes/beta/drain", browser)
    assert (status, where, cluster.record.story) == (303, "/nodes", ["drain 2"])
    status, _, page = await post_form(service, "/nodes/beta/burn", browser)
    assert (status, "expected one of drain, resume, forget" in page) == (404, True)
    reader = await signed_in(service, Scope.READ, name="ben")
    assert (await post_form(service, "/nodes/beta/resume", reader))[0] == 403
    async with client_of(tcp_app(service)) as client:
        page = (await get_page(client, "/nodes", **reader))[1]
        assert "beta" in page
        assert "Drain" not in page
        assert "Drain" in (await get_page(client, "/nodes", **browser))[1]


async def test_the_page_is_in_the_navigation_of_a_node_alone() -> None:
    assert "alone on its database" in await page_of("/nodes")
    assert 'href="/nodes"' not in await page_of("/channels")
    hostile = make_node(BETA, "<script>alert(1)</script>", url="http://<b>", labels=("<i>",))
    service = make_dashboard_service()
    service.nodes.cluster = cluster = two_on_record()
    cluster.record.nodes.append(hostile)
    assert "<b>" not in await page_of("/nodes", service)


def test_commands_list_the_nodes_and_change_one(tmp_path: Path) -> None:
    service = FakeDaemonService(root=tmp_path)
    (tmp_path / "data").mkdir(mode=0o700)
    with serve_daemon_socket(service, tmp_path / "data"):
        assert "alone on its database" in spyweb("nodes", root=tmp_path).err
        service.nodes.cluster = cluster = two_on_record()
        rows = {row[0]: row[1:4] for row in spyweb("nodes", root=tmp_path).table}
        assert rows == {"alpha*": ["alive", "0", "1"], "beta": ["alive", "2", "2"], "gamma": ["dead", "0", "1"]}
        assert [each["name"] for each in spyweb("nodes", "-o", "json", root=tmp_path).json] == [
            "alpha",
            "beta",
            "gamma",
        ]
        assert spyweb("nodes", "drain", "beta", root=tmp_path).out == "beta gives its jobs to the others\n"
        assert cluster.record.story == ["drain 2"]
        assert "the name of the node is missing" in spyweb("nodes", "drain", root=tmp_path).err
        assert dict(row[:2] for row in spyweb("jobs", root=tmp_path).table)[PRICES] == "beta"
