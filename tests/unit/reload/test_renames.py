"""A job that was renamed is noticed by its content, or as the only one that came as the only one went."""

from __future__ import annotations

from msgspec.structs import replace

from spyweb.model import JobId
from spyweb.reload.swap import Renames
from spyweb.runs.live import LiveJob
from tests.fakes.harness import make_job

SHOP = JobId("shop")


async def always(_job: JobId) -> bool:
    return True


def a_job(name: str, digest: str) -> LiveJob:
    return replace(make_job(name), digest=digest)


async def told(renames: Renames, *new: LiveJob, gone: tuple[JobId, ...] = ()) -> list[str]:
    await renames.look(new, gone)
    assert [job.warnings for job in new] == [renames.warnings(job) for job in new]
    return [job.id for job in new if job.warnings]


async def test_a_job_with_the_content_of_one_that_went_before_may_be_that_one() -> None:
    renames = Renames(always)
    renames.note_gone(a_job("shop", "a"))
    assert await told(renames, a_job("store", "a"), a_job("other", "b")) == ["store"]


async def test_a_job_that_comes_back_under_its_own_name_is_not_renamed() -> None:
    renames = Renames(always)
    renames.note_gone(a_job("shop", "a"))
    assert await told(renames, a_job("shop", "a"), gone=(SHOP,)) == []


async def test_of_several_that_come_and_go_together_none_is_guessed() -> None:
    renames = Renames(always)
    assert await told(renames, a_job("x", "a"), a_job("y", "b"), gone=(SHOP,)) == []
    assert await told(renames, a_job("z", "c"), gone=(SHOP,)) == ["z"]
