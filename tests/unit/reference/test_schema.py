"""What an editor is told is what the parser takes: neither knows a key, a type or a name that the other does not."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from datetime import date, datetime, time
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from spyweb.checks.settings import ANY_CHECK, CHECK, CheckKind
from spyweb.reference.schema import JOB, SETTINGS, WORDS, config_schema, job_schema
from spyweb.settings.alerts import channel_keys
from spyweb.settings.load import examine_settings, section_keys
from spyweb.settings.reading import Schema
from spyweb.specs.discover import scan
from spyweb.specs.maintenance import maintenance_keys
from spyweb.specs.parse import NOT_IN_DEFAULTS, job_keys
from tests.fakes.command import spyweb
from tests.fakes.repository import ROOT, read

MONITOR = 'name = "Watch"\nurl = "https://a.b"\nselector = "li"\nfields = ["t:h2"]\n'
JOBS, CONFIG = Draft202012Validator(job_schema()), Draft202012Validator(config_schema())

GOOD = [
    "",
    "interval = 60",
    'every = "1h30m"\nretries = 2\nstart = "interval"\nmisfire_grace = "none"',
    'cron = "0 * * * *"\ntimezone = "Europe/Berlin"\nmemory_limit = "128MB"',
    "at = 2026-12-24T18:00:00Z",
    'after = ["a", { job = "b", outcome = ["failed", "lost"] }]\non = { scope = "orders", events = "created" }',
    'keywords = ["x"]\nsearch_fields = ["t"]\nhash_fields = ["t"]\nheaders = { "X-A" = "b" }\ndebug = true',
    '[proxy]\nrotate = "Random"\nurls = ["socks5://p:1"]\n[webhook]\nurl = "https://x.y"\nheaders = { a = "b" }',
    '[notification]\nenabled = false\ntimeout = 5000\ntitle = "{t}"\nbody = ""',
]
BAD = [
    "interval = 0",
    "interval = '5x!'",
    "every = '1h'\ninterval = 5",
    "cron = 5",
    "workers = 0",
    "workers = 1.5",
    "retries = -1",
    "start = 'later'",
    "keywords = 'x'",
    "keywords = [' ']",
    "headers = { a = 5 }",
    "on_hook_error = 'stop'",
    "after = { outcome = 'any' }",
    "[proxy]\nurls = ['ftp://x']",
    "[proxy]\nrotate = 'roundrobin'\nurls = ['http://p']",
    "[webhook]\nurl = '/x'",
    "[notification]\ntimeout = -1",
]


def as_json(value: object) -> object:
    """TOML as an editor hands it to JSON Schema: moments are text."""
    if isinstance(value, Mapping):
        return {key: as_json(item) for key, item in value.items()}
    if isinstance(value, list):
        return [as_json(item) for item in value]
    return value.isoformat() if isinstance(value, datetime | date | time) else value


def complaints(validator: Draft202012Validator, text: str) -> list[str]:
    return [error.message for error in validator.iter_errors(as_json(tomllib.loads(text)))]


def problems(root: Path, name: str, text: str) -> list[object]:
    (root / "jobs").mkdir(exist_ok=True)
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text)
    settings, wrong = examine_settings(root, environ={}, flags={})
    return [*wrong, *scan(root, settings).problems]


def with_defaults(*sections: str) -> dict[str, dict[str, object]]:
    """The defaults that the schema tells, of these sections."""
    shown = config_schema()["properties"]
    assert isinstance(shown, Mapping)
    return {
        section: {key: shape["default"] for key, shape in shown[section]["properties"].items() if "default" in shape}
        for section in sections
    }


def test_the_defaults_that_are_told_are_those_of_an_empty_file(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("[status_page]")  # which is served only where it is written
    expected = examine_settings(tmp_path, environ={}, flags={})
    told = with_defaults(*section_keys())
    untold = {f"{name}.{key}" for name, keys in section_keys().items() for key in keys if key not in told[name]}
    (tmp_path / "config.toml").write_text(to_toml(told))
    settings, wrong = examine_settings(tmp_path, environ={}, flags={})

    assert not wrong
    assert settings == expected[0]
    assert untold == {"cluster.name", "daemon.timezone", "daemon.workers", "server.permissions"}, (
        "the machine's, and a table"
    )


def test_the_defaults_of_jobs_that_are_told_are_those_of_a_job_that_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs/one.lua").write_text("-- /// job\n-- ///\n")
    expected = scan(tmp_path, examine_settings(tmp_path, environ={}, flags={})[0])
    (tmp_path / "config.toml").write_text(to_toml(with_defaults("defaults")))
    found = scan(tmp_path, examine_settings(tmp_path, environ={}, flags={})[0])

    assert not found.problems
    assert [file.spec for file in found.jobs.values()] == [file.spec for file in expected.jobs.values()]


def to_toml(sections: Mapping[str, Mapping[str, object]]) -> str:
    """What they hold is written alike in TOML and JSON, but for an empty table."""
    lines = []
    for section, keys in sections.items():
        lines.append(f"[{section}]")
        lines += [f"{key} = {json.dumps(value)}" for key, value in keys.items()]
    return "\n".join(lines)


def test_both_are_schemas() -> None:
    for validator in (JOBS, CONFIG):
        Draft202012Validator.check_schema(validator.schema)


def test_the_command_prints_what_was_asked_for() -> None:
    assert spyweb("schema").json == job_schema() == spyweb("schema", "job").json
    assert spyweb("schema", "config").json == config_schema()


@pytest.mark.parametrize("more", GOOD)
def test_what_the_parser_takes_is_valid(more: str, tmp_path: Path) -> None:
    others = "".join(f'[[jobs]]\nname = "{name}"\n{MONITOR.partition(chr(10))[2]}' for name in "ab")
    assert problems(tmp_path, "jobs.toml", others) == problems(tmp_path, "jobs/w/config.toml", MONITOR + more) == []
    assert complaints(JOBS, MONITOR + more) == []
    assert complaints(JOBS, f"[[jobs]]\n{MONITOR}") == []


@pytest.mark.parametrize("more", BAD)
def test_what_the_parser_refuses_is_not(more: str, tmp_path: Path) -> None:
    assert problems(tmp_path, "jobs/w/config.toml", MONITOR + more)
    assert complaints(JOBS, MONITOR + more)


@pytest.mark.parametrize("missing", ["name", "url", "selector", "fields"])
def test_what_is_required_is_required_in_both_files(missing: str, tmp_path: Path) -> None:
    text = "\n".join(line for line in MONITOR.splitlines() if not line.startswith(missing))
    assert problems(tmp_path, "jobs/w/config.toml", text)
    assert complaints(JOBS, text)
    assert complaints(JOBS, f"[[jobs]]\n{text}")


@pytest.mark.parametrize(
    ("text", "valid"),
    [
        (
            'check = "http"\nurl = "https://a.b"\nexpect = ["status == 200"]\nconfirm = 2\nevery = "1m"\nretries = 1',
            True,
        ),
        ('check = "tcp"\nhost = "a.b"\nport = 25\ntls = true\ntimeout = "5s"', True),
        ('check = "command"\ncommand = "true"', True),
        ('check = "command"\ncommand = ["true"]\nexpect = ["exit == 0"]', True),
        ('check = "http"', False),
        ('check = "htp"\nurl = "https://a.b"', False),
        ('check = "ping"\nhost = "a"\ncount = 99', False),
        ('check = "tls"\nhost = "a"\nurl = "https://a.b"', False),
        ('check = "http"\nurl = "https://a.b"\nexpect = "ping"', False),
        ('check = "http"\nurl = "https://a.b"\nvalues = { a = 1 }', False),
    ],
)
def test_a_check_is_judged_alike(text: str, valid: bool, tmp_path: Path) -> None:
    assert (not problems(tmp_path, "jobs/site.toml", text)) is valid
    assert (not complaints(JOBS, text)) is valid
    assert (not complaints(JOBS, f'[[jobs]]\nname = "x"\n{text}')) is valid


def test_a_key_that_nobody_knows_is_marked() -> None:
    for text in ("intervall = 5", "[proxy]\nrotat = 'Random'\nurls = ['http://p']"):
        assert complaints(JOBS, MONITOR + text)
    assert complaints(JOBS, f"jobz = []\n[[jobs]]\n{MONITOR}")
    assert complaints(CONFIG, "[deamon]\nport = 5")
    assert complaints(CONFIG, "[defaults]\nname = 'x'")


def test_the_example_of_all_settings_is_valid() -> None:
    example = read("config.example.toml")
    switched_on = [re.sub(r"^# (?=\w+ = )", "", line) for line in example.splitlines()]
    one_schedule = [line for line in switched_on if not line.startswith(("#", "cron =", "at ="))]
    text = "\n".join(one_schedule)
    of_jobs = set(re.findall(r"(\w+) =", example.split("[defaults]\n")[1]))
    assert set(job_keys(is_monitor=True)) - {"name", "permissions", "alerts"} <= of_jobs
    assert complaints(CONFIG, text) == []


@pytest.mark.parametrize(
    ("text", "valid"),
    [
        ("[jobs.a]\ninterval = 5\nworkers = 3\nproxy.enabled = false", True),
        ("[jobs.a]\nname = 'b'", False),
        ("[defaults]\nretries = 2", True),
        ("[defaults]\nworkers = 2", False),
        ("[server]\nport = 70000", False),
        ("[store]\nurl = 'mysql://x'", False),
        ("[state]\nhistory = { state = 20, 'scope:orders' = '7d' }", True),
        ("[state]\nhistory = { orders = 20 }", False),
        ("[http]\ntimeout = 'soon!'", False),
    ],
)
def test_the_settings_of_the_project_are_judged_alike(text: str, valid: bool, tmp_path: Path) -> None:
    (tmp_path / "jobs/a").mkdir(parents=True)
    (tmp_path / "jobs/a/config.toml").write_text(MONITOR.replace("Watch", "A"))
    assert (not problems(tmp_path, "config.toml", text)) is valid
    assert (not complaints(CONFIG, text)) is valid


def keys_of(schema: object, *path: str) -> set[str]:
    for name in (*path, "properties"):
        assert isinstance(schema, Mapping)
        schema = schema[name]
    assert isinstance(schema, Mapping)
    return set(schema)


def test_every_key_that_the_parser_takes_is_there_and_no_other() -> None:
    every = set(job_keys(is_monitor=True))
    assert keys_of(job_schema(), "$defs", "monitor") == every
    of_all = set(job_keys(is_monitor=False)) - {"name", *NOT_IN_DEFAULTS}
    of_checks = set(job_keys(check=ANY_CHECK))
    for kind in CheckKind:
        assert keys_of(job_schema(), "$defs", kind) == set(job_keys(check=kind)) <= of_checks
    assert keys_of(config_schema(), "properties", "defaults") == of_all
    assert keys_of(config_schema(), "properties", "jobs", "additionalProperties") == (every | of_checks) - {
        "name",
        CHECK,
    }
    assert keys_of(config_schema()) == {*section_keys(), "channels", "maintenance", "values", "defaults", "jobs"}
    for section, keys in section_keys().items():
        assert keys_of(config_schema(), "properties", section) == set(keys)


def test_every_key_says_what_it_takes() -> None:
    every: list[Schema] = [*job_keys(is_monitor=True).values()]
    every += [*job_keys(check=ANY_CHECK).values()]
    every += [schema for keys in section_keys().values() for schema in keys.values()]
    assert all(schema.keys() & {"type", "anyOf", "enum"} for schema in every)


def names(keys: Mapping[str, Schema], prefix: str = "") -> Iterator[str]:
    for key, schema in keys.items():
        yield prefix + key
        instead = schema.get("anyOf", ())
        for each in (schema, *(instead if isinstance(instead, list) else ())):
            if isinstance(inner := each.get("properties"), Mapping):
                yield from names(inner, f"{prefix}{key}.")


def test_every_key_has_a_word_of_one_line_and_no_word_is_about_a_key_that_is_gone() -> None:
    of_sections = {f"{section}.{key}": value for section, keys in section_keys().items() for key, value in keys.items()}
    told = {key: str(value["description"]) for key, value in of_sections.items() if "description" in value}
    assert set(names(job_keys(is_monitor=True))) == JOB.keys() >= set(names(job_keys(is_monitor=False)))
    of_checks = set(names(job_keys(check=ANY_CHECK)))
    assert {*WORDS["check"]} == {"timeout", *of_checks - set(names(job_keys(is_monitor=False))), "expect"}
    assert {*told, *SETTINGS} == {*of_sections}
    assert (set(names(channel_keys())), set(maintenance_keys())) == ({*WORDS["channel"]}, {*WORDS["maintenance"]})
    for word in (*told.values(), *(word for words in WORDS.values() for word in words.values())):
        assert len(word.splitlines()) == 1
        assert len(word) <= 120


def test_keys_below_one_that_may_be_something_else_are_explained() -> None:
    schema = str(job_schema())
    assert all(str({"description": JOB[key]})[1:-1] in schema for key in ("ping_url.fail", "on.scope"))


def test_the_samples_and_the_template_are_valid() -> None:
    files = [*ROOT.glob("jobs/*/config.toml"), ROOT / "spyweb/cli/template/monitor.toml"]
    assert len(files) > 1
    for file in files:
        assert complaints(JOBS, file.read_text()) == [], file


def test_a_job_that_runs_elsewhere_is_no_monitor(tmp_path: Path) -> None:
    text = 'name = "backup"\nexpect = "ping"\nevery = "1d"\ngrace = "1h"\n'
    assert problems(tmp_path, "jobs/w/config.toml", text) == []
    assert complaints(JOBS, text) == complaints(JOBS, f"[[jobs]]\n{text}") == []
    assert complaints(CONFIG, '[jobs.a]\nexpect = "ping"\nevery = "1d"') == []
    assert complaints(CONFIG, '[jobs.a]\nexpect = "pong"')
    assert complaints(CONFIG, '[defaults]\nexpect = "ping"')
