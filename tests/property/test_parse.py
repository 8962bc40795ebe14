"""Any content of a project's files gives jobs or problems, never an exception."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from spyweb.errors import ConfigError, Problem
from spyweb.jobs.block import read_block
from spyweb.jobs.discover import scan
from spyweb.jobs.parse import job_id
from spyweb.settings import load_settings

KEYS = st.sampled_from(
    [
        *("name", "description", "tags", "enabled", "every", "cron", "at", "timezone", "jitter", "start", "timeout"),
        *("cpu_limit", "memory_limit", "isolation", "overlap", "misfire", "misfire_grace", "misfire_limit", "retries"),
        *("retry_delay", "retry_backoff", "retry_max_delay", "retry_jitter", "after", "on", "agent", "history"),
        *("on_hook_error", "timeot", "[x]", "a.b"),
    ]
)
VALUES = st.one_of(
    st.sampled_from(
        [
            '"never"', '"1h30m"', '"* * * * *"', '"*/5 * * * * *"', "2026-12-24T18:00:00Z", "2026-12-24T18:00:00",
            "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "2026-12-24", "12:00:00", "nan", "-inf", "1e400",
            "true", "[]", "{}", '{ job = "a" }', '["a", { job = "b", outcome = "any" }]', "[[[]]]", '"a"',
        ]
    ),
    st.integers().map(str),
    st.floats().map(str),
    st.text(max_size=20).map(lambda text: repr(text).replace("\\x", "\\u00")),
)  # fmt: skip
ENTRIES = st.lists(st.tuples(KEYS, VALUES).map(" = ".join), max_size=6)
BLOCKS = ENTRIES.map(lambda lines: "\n".join(["-- /// job", *(f"-- {line}" for line in lines), "-- ///"]).encode())
SOURCES = st.one_of(BLOCKS, st.binary(max_size=200), st.binary(max_size=60).map(lambda raw: b"-- /// job\n--" + raw))


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(SOURCES, SOURCES, ENTRIES, ENTRIES)
def test_any_files_give_jobs_or_problems(one: bytes, two: bytes, override: list[str], defaults: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "jobs").mkdir()
        (root / "jobs/a.lua").write_bytes(one)
        (root / "jobs/b.lua").write_bytes(two)
        (root / "config.toml").write_text("\n".join(["[jobs.a]", *override, "[defaults]", *defaults]), "utf-8")
        try:
            loaded = load_settings(root, environ={}, flags={})
        except ConfigError:
            return
        found = scan(root, loaded)
        assert len(found.jobs) == 2 or found.problems or found.broken
        assert all(job == file.spec.id for job, file in found.jobs.items())
        assert not set(found.jobs) & set(found.broken)


@given(st.binary(max_size=300))
@example(b"--[[")
@example(b"#")
@example(b"-- /// job")
def test_any_bytes_have_a_block_or_a_problem_with_its_line(source: bytes) -> None:
    read = read_block(source, "jobs/a.lua")

    assert not isinstance(read, Problem) or read.line


@given(st.text())
def test_an_id_is_its_own_id_and_has_no_underscore_at_its_ends(name: str) -> None:
    job = job_id(name)

    assert job == job.strip("_")
    assert job_id(job) == job_id(job_id(job))
