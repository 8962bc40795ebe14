"""Any content of a project's files gives jobs or problems, never an exception."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from spyweb.errors import ConfigError, Problem
from spyweb.model import Field
from spyweb.settings.load import load_settings
from spyweb.specs.block import read_block
from spyweb.specs.discover import scan
from spyweb.specs.monitor_file import read_field
from spyweb.specs.parse import job_id

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


MONITOR_KEYS = st.one_of(
    KEYS,
    st.sampled_from(
        [
            *("url", "urls", "selector", "fields", "interval", "workers", "keywords", "search_fields", "hash_fields"),
            *("headers", "proxy", "proxy.urls", "proxy.rotate", "webhook", "webhook.url", "webhook.headers"),
            *("notification", "notification.timeout", "debug", "intervall", "jobs"),
        ]
    ),
)
MONITOR_VALUES = st.one_of(
    VALUES,
    st.sampled_from(
        [
            '"https://example.com"', '["https://a.b", "/x"]', '["a:b@c", { name = "d" }]', '[{ name = 5 }]', '["a"]',
            '{ "X" = "y" }', '{ urls = ["socks5://p:1"] }', '"http://[::1"', '"http://a:99999"', '[":"]', '"Random"',
        ]
    ),
)  # fmt: skip
OF_A_MONITOR = st.lists(st.tuples(MONITOR_KEYS, MONITOR_VALUES).map(" = ".join), max_size=8)
WHOLE = 'name = "W"\nurl = "https://a.b"\nselector = "x"\nfields = ["a:b"]\n'
FILES = st.one_of(
    OF_A_MONITOR.map(lambda lines: "\n".join(lines).encode()),
    OF_A_MONITOR.map(lambda lines: (WHOLE + "\n".join(lines)).encode()),
    OF_A_MONITOR.map(lambda lines: ("[[jobs]]\n" + WHOLE + "\n".join(lines)).encode()),
    st.binary(max_size=120),
)


@pytest.mark.slow
@given(FILES, FILES, st.binary(max_size=40), OF_A_MONITOR)
def test_any_files_of_monitors_give_jobs_or_problems(
    own: bytes, listed: bytes, hooks: bytes, override: list[str]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "jobs/w").mkdir(parents=True)
        (root / "jobs/w/config.toml").write_bytes(own)
        (root / "jobs/w/hooks.lua").write_bytes(hooks)
        (root / "jobs.toml").write_bytes(listed)
        (root / "config.toml").write_text("\n".join(["[jobs.w]", *override]), "utf-8")
        try:
            loaded = load_settings(root, environ={}, flags={})
        except ConfigError:
            return
        found = scan(root, loaded)
        assert found.jobs or found.problems or found.warnings
        assert all(problem.file and problem.reason for problem in (*found.problems, *found.warnings))
        for file in found.jobs.values():
            monitor = file.spec.monitor
            assert monitor
            assert monitor.urls
            assert monitor.selector
            assert {*monitor.hash_fields, *monitor.search_fields} <= {field.name for field in monitor.fields}


PLAIN = st.text(st.characters(exclude_characters=":@", exclude_categories=["C", "Z"]), min_size=1, max_size=10)
SELECTORS = st.sampled_from(["", "a", "a > b", "li:first-child", "a[href*='@']", "a[x='y:z']", "::x", "a@b c"])
ATTRIBUTES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_:.-]{0,8}", fullmatch=True).filter(lambda name: name != "text")


@given(PLAIN, SELECTORS, ATTRIBUTES)
def test_a_field_is_what_was_put_together(name: str, selector: str, attribute: str) -> None:
    assert read_field(f"{name}:{selector}@{attribute}") == Field(name=name, selector=selector, attribute=attribute)
    assert read_field(f"{name}:{selector}") == Field(name=name, selector=selector)
    assert read_field(name) == Field(name=name, selector="")


@given(st.text())
def test_any_text_with_a_name_before_its_colon_is_a_field(written: str) -> None:
    if not written.partition(":")[0].strip():
        with pytest.raises(ValueError, match="has no name"):
            read_field(written)
    else:
        field = read_field(written)
        assert field.name == written.partition(":")[0].strip()
