"""The sample jobs load without a problem, compile, and explain themselves.  That they run is an acceptance test."""

from __future__ import annotations

import re

import pytest

from spyweb.settings.load import load_settings
from spyweb.specs.discover import scan
from tests.fakes.lua_text import compile_problem
from tests.fakes.repository import ROOT, code_words, read, tracked_files

LUA_FILES = [
    str(path.relative_to(ROOT))
    for path in tracked_files()
    if path.is_relative_to(ROOT / "jobs") and path.suffix == ".lua"
]


def test_the_samples_have_no_problem() -> None:
    found = scan(ROOT, load_settings(ROOT, environ={}, flags={}))
    assert not found.problems
    assert not found.warnings
    assert found.jobs.keys() >= {"check_api", "counter_a", "counter_b", "session_counter", "nightly", "report"}


def test_every_sample_says_what_it_is_for() -> None:
    found = scan(ROOT, load_settings(ROOT, environ={}, flags={}))
    assert not [job_id for job_id, file in found.jobs.items() if not file.spec.description]


@pytest.mark.parametrize("name", LUA_FILES)
def test_a_sample_compiles_and_explains_itself(name: str) -> None:
    source = read(name)
    assert compile_problem(source, name) is None
    comments = [line for line in source.splitlines() if line.strip().startswith("--")]
    assert len(comments) >= len(source.splitlines()) / 10, "a newcomer finds too little to read"


def test_the_breaker_of_the_samples_is_the_one_its_page_explains() -> None:
    page = read("docs/how-to/circuit-breaker.md")
    sample = [line.strip() for line in read("jobs/check-api.lua").splitlines()]
    assert {"failures", "opened_at"} <= code_words(page)
    blocks = re.findall(r"```lua\n(.*?)```", page, re.DOTALL)
    assert len(blocks) >= 4
    for block in blocks:
        lines = [line.strip() for line in block.splitlines()]
        assert any(sample[at : at + len(lines)] == lines for at in range(len(sample))), block
