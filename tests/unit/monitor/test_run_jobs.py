"""What outlives a run of a monitor job."""

from __future__ import annotations

from asyncio import get_running_loop

from msgspec.structs import replace

from spyweb.lua.wire import Why
from spyweb.model import Outcome, Proxies, RunId
from tests.fakes.monitor import Shop, make_monitor

TWO = Proxies(urls=("http://a.example", "http://b.example"))


async def test_proxies_take_turns_over_runs_until_the_settings_change(s: Shop) -> None:
    job = make_monitor(proxies=TWO)
    await s.run(job)
    await s.run(job)
    job.spec = replace(job.spec, description="edited")
    await s.run(job)
    assert [str(fetch.proxy) for fetch in s.http.asked] == [TWO.urls[0], TWO.urls[1], TWO.urls[0]]


async def test_settings_that_change_in_a_run_count_from_the_next(s: Shop) -> None:
    s.http.held["http://shop.example/1"] = gate = get_running_loop().create_future()
    job = make_monitor(urls=("http://shop.example/1", "http://shop.example/2"), is_queue=True)
    task = s.start(job)
    await s.clock.turn()
    job.spec = make_monitor(urls=("http://shop.example/3",)).spec
    gate.set_result(None)
    await s.clock.turn()
    assert (await task).outcome is Outcome.SUCCESS
    await s.run(job)
    assert [str(fetch.url)[-1] for fetch in s.http.asked] == ["1", "2", "3"]


async def test_nothing_is_left_of_a_job_that_is_gone_once_its_runs_have_ended(s: Shop) -> None:
    idle, busy = make_monitor(), make_monitor()
    await s.run(idle)
    s.monitors.forget(idle.id)
    assert not s.monitors._versions
    assert not s.monitors._unannounced

    s.http.held["http://shop.example/"] = gate = get_running_loop().create_future()
    task = s.start(busy)
    await s.clock.turn()
    busy.gone = True
    s.monitors.forget(busy.id)
    assert s.monitors._unannounced  # a job that comes back must not announce what this run has in hand
    gate.set_result(None)
    await s.clock.turn()
    assert (await task).outcome is Outcome.SUCCESS
    assert not s.monitors._versions
    assert not s.monitors._unannounced


async def test_to_cancel_a_run_that_has_ended_does_nothing(s: Shop) -> None:
    await s.run()
    s.monitors.cancel(RunId(1), Why.CANCELLED)


async def test_a_job_that_became_a_script_is_told_so(s: Shop) -> None:
    job = make_monitor()
    job.spec = replace(job.spec, monitor=None)
    assert (await s.run(job)).reason == "shop is no monitor job any more"
