from __future__ import annotations

from spyweb.lua.pool import Quarantine
from spyweb.lua.session import Code
from spyweb.model import JobId


def code(generation: int = 1) -> Code:
    return Code(job=JobId("a"), generation=generation, chunk="jobs/a.lua", source=b"")


def test_a_quarantined_job_is_held_until_a_clean_run() -> None:
    quarantine = Quarantine()
    quarantine.put(code(), "it crashed", until_clean_run=True)

    assert quarantine.holds(code())
    assert quarantine.reasons == {"a": "it crashed"}

    assert quarantine.release_after_clean_run(code())
    assert not quarantine.holds(code())
    assert not quarantine.release_after_clean_run(code())


def test_a_newer_generation_is_not_held() -> None:
    quarantine = Quarantine()
    quarantine.put(code(1), "it crashed", until_clean_run=True)

    assert not quarantine.holds(code(2))
    assert quarantine.holds(code(1))


def test_a_clean_run_of_a_newer_generation_says_nothing_about_the_older() -> None:
    quarantine = Quarantine()
    quarantine.put(code(1), "it crashed", until_clean_run=True)

    assert not quarantine.release_after_clean_run(code(2))
    assert quarantine.holds(code(1))


def test_retiring_the_generation_ends_its_case() -> None:
    quarantine = Quarantine()
    quarantine.put(code(1), "it crashed", until_clean_run=True)

    quarantine.renew(JobId("a"), older_than=1)
    assert quarantine.reasons

    quarantine.renew(JobId("a"), older_than=2)
    assert not quarantine.reasons


def test_a_job_that_was_too_large_stays_apart_after_clean_runs() -> None:
    quarantine = Quarantine()
    quarantine.put(code(), "too large", until_clean_run=False)

    assert not quarantine.release_after_clean_run(code())
    assert quarantine.holds(code())
