"""Every setting is on the reference page and in config.example.toml, with its default, and nothing else is."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path

from spyweb import __version__
from spyweb.incidents.policy import NOBODY
from spyweb.ops.network.request import clean_headers
from spyweb.reference.schema import EXAMPLE, example
from spyweb.schedules.cron import ALIASES, parse_cron
from spyweb.settings.alerts import channel_keys
from spyweb.settings.load import load_settings, section_keys
from spyweb.settings.reading import Schema
from spyweb.settings.units import parse_duration
from spyweb.specs.discover import scan
from spyweb.specs.maintenance import maintenance_keys
from spyweb.specs.parse import ANY, PERMISSIONS, RUN_OUTCOMES, job_keys
from tests.fakes.repository import code_words, read

PAGE = "docs/reference/settings.md"
_ROW = re.compile(r"^\| (?:\*\*`\[+(\w+)[^`]*`\*\*|`(\w+)`) \| (.*?) ?\|", re.MULTILINE)
_VARIABLE = re.compile(r"SPYWEB_[A-Z_]+")


def documented(heading: str) -> dict[str, dict[str, str]]:
    """The keys of the table below a heading, by section, and the default that each is said to have."""
    found: dict[str, dict[str, str]] = {"": {}}
    for section, key, default in _ROW.findall(read(PAGE).split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]):
        if section:
            found[section] = {}
        else:
            next(reversed(found.values()))[key] = default
    return found


def sections() -> dict[str, Mapping[str, Schema]]:
    return {**section_keys(), "channels": channel_keys(), "maintenance": maintenance_keys()}


def test_every_setting_is_documented_with_its_default() -> None:
    """Where the page shows a value, and not a word about where the default comes from."""
    shown = {**documented("config.toml"), "job": documented("Job settings")[""]}
    for section, keys in {**sections(), "job": job_keys(is_monitor=False)}.items():
        assert shown[section].keys() == keys.keys() - ({PERMISSIONS} if section == "server" else set()), section
        for key, default in shown[section].items():
            told = keys[key].get("default")
            if default[:1] == default[-1:] == "`" and default != "`default_interval`" and told is not None:
                value = tomllib.loads(f"x = {default.strip('`').replace('VERSION', __version__)}")["x"]
                assert value == told, f"{section}.{key}"


def test_every_setting_of_a_monitor_is_documented() -> None:
    own = set(job_keys(is_monitor=True)) - set(job_keys(is_monitor=False))
    section = read(PAGE).split("## Monitor settings\n", 1)[1].split("\n## ", 1)[0]
    documented = set(re.findall(r"^\| `\[?(\w+)\]?` \|", section, re.MULTILINE))
    assert documented == own | {"name"}
    for key in own:
        schema = job_keys(is_monitor=True)[key]
        inner = schema.get("properties", {})
        assert isinstance(inner, Mapping)
        row = next((line for line in section.splitlines() if line.startswith(f"| `[{key}]` |")), "")
        assert set(inner) <= code_words(row), key


def test_the_example_is_as_it_would_be_made_now() -> None:
    assert read(EXAMPLE) == example(), "`make docs` writes it anew"


def test_the_words_that_a_value_may_be_made_of_are_documented() -> None:
    page = read(PAGE)
    units = re.search(r'`"250ms"`: (.*?) and `(\w+)`', page)
    assert units
    assert {*re.findall(r"`(\w+)`", units[1]), units[2]} == {"w", "d", "h", "m", "s", "ms"}
    assert all(parse_duration(f"1{unit}") for unit in re.findall(r"`(\w+)`", units[0]))
    assert set(re.findall(r"`(@\w+)`", page)) == ALIASES.keys() - {"@midnight", "@annually"}
    for fields in ("0 0 L * *", "0 0 * * mon#2"):
        parse_cron(fields)
    outcomes = documented_row("after").split("An outcome is ", 1)[1]
    assert {*re.findall(r"`(\w+)`", outcomes)} == {*RUN_OUTCOMES, ANY}


def documented_row(key: str) -> str:
    return next(line for line in read(PAGE).splitlines() if line.startswith(f"| `{key}` |"))


def test_every_variable_is_documented() -> None:
    code = "".join(read(f"spyweb/{name}") for name in ("settings/load.py", "web/access/guard.py"))
    assert set(_VARIABLE.findall(code)) <= set(_VARIABLE.findall(read(PAGE)))


def test_what_spyweb_sent_can_be_sent_from_here(tmp_path: Path) -> None:
    (block,) = re.findall(r"```toml\n(.*?)```", read("docs/how-to/move-from-spyweb.md"), re.DOTALL)
    (tmp_path / "config.toml").write_text(block)
    sent = dict(load_settings(tmp_path, environ={}, flags={}).http.headers)
    assert len(sent) == 12
    assert "Chrome/" in sent["User-Agent"]
    assert clean_headers({name.encode(): value.encode() for name, value in sent.items()}) == sent


def test_what_the_page_about_not_being_woken_shows_is_right(tmp_path: Path) -> None:
    blocks = re.findall(r"```toml\n(.*?)```", read("docs/how-to/quiet-nights.md"), re.DOTALL)
    assert len(blocks) == 6
    (tmp_path / "jobs").mkdir()
    for name in ("backup", "backup_db", "web", "internet"):
        (tmp_path / f"jobs/{name}.lua").write_text("log('x')")
    for block in blocks:
        (tmp_path / "config.toml").write_text(f'{block}\n[channels.phone]\nurl = "ntfy://x"\n')
        settings = load_settings(tmp_path, environ={}, flags={})
        found = scan(tmp_path, settings)
        assert (found.problems, found.warnings) == ([], []), block
        assert settings.alerts.policy != NOBODY or found.maintenance or settings.jobs
