"""Every setting is on the reference page and in config.example.toml, with its default, and nothing else is."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path

from spyweb.incidents.policy import NOBODY
from spyweb.ops.network.request import clean_headers
from spyweb.schedules.cron import ALIASES, parse_cron
from spyweb.settings import load_settings
from spyweb.settings.alerts import channel_keys
from spyweb.settings.load import section_keys
from spyweb.settings.units import parse_duration
from spyweb.specs.discover import scan
from spyweb.specs.maintenance import maintenance_keys
from spyweb.specs.parse import ANY, RUN_OUTCOMES, job_keys
from tests.fakes.repository import code_words, read

PAGE = "docs/reference/settings.md"
NOT_IN_DEFAULTS = {"name", "permissions", "alerts", "expect", "grace"}
_ROW = re.compile(r"^\| `(\w+)` \| (.*?) \|", re.MULTILINE)
_VARIABLE = re.compile(r"SPYWEB_[A-Z_]+")


def documented(heading: str) -> dict[str, str]:
    """The keys of the table below a heading, and the default that each is said to have."""
    section = read(PAGE).split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    return dict(_ROW.findall(section))


def example() -> dict[str, dict[str, object]]:
    """config.example.toml with everything switched on; of several schedules the first."""
    lines = []
    for line in read("config.example.toml").splitlines():
        switched_on = re.sub(r"^# (?=\w+ = )", "", line)
        lines.append("" if switched_on.startswith("#") else switched_on)
    return tomllib.loads("\n".join(lines))


def test_every_setting_is_documented() -> None:
    of_sections = {key for section, keys in section_keys().items() for key in keys if section != "server"}
    of_server = section_keys()["server"].keys() - {"permissions"}
    of_daemon = of_sections | of_server | channel_keys().keys() | maintenance_keys().keys()
    assert of_daemon == documented("config.toml").keys()
    assert job_keys(is_monitor=False).keys() == documented("Job settings").keys()


def test_every_setting_of_a_monitor_is_documented() -> None:
    own = set(job_keys(is_monitor=True)) - set(job_keys(is_monitor=False))
    section = read(PAGE).split("## Monitor settings\n", 1)[1].split("\n## ", 1)[0]
    documented = set(re.findall(r"^\| `\[?(\w+)\]?` \|", section, re.MULTILINE))
    assert documented == own | {"name"}
    example = read("config.example.toml").split("# [jobs.my_monitor]\n", 1)[1]
    assert set(re.findall(r"^#   (\w+) = ", example, re.MULTILINE)) == own - {"urls"}
    for key in own:
        schema = job_keys(is_monitor=True)[key]
        inner = schema.get("properties", {})
        assert isinstance(inner, Mapping)
        row = next((line for line in section.splitlines() if line.startswith(f"| `[{key}]` |")), "")
        assert set(inner) <= code_words(row), key


def test_the_example_lists_every_setting() -> None:
    tables = example()
    keys = {key for name, table in tables.items() if name not in ("values", "defaults", "jobs") for key in table}
    channel, maintenance = example_of("# [channels.ops]"), example_of("# [[maintenance]]")
    assert channel == channel_keys().keys()
    assert maintenance == maintenance_keys().keys()
    assert keys | channel | maintenance == documented("config.toml").keys()
    assert tables["defaults"].keys() == documented("Job settings").keys() - NOT_IN_DEFAULTS


def example_of(heading: str) -> set[str]:
    """The keys below a heading of config.example.toml that is switched off."""
    section = read("config.example.toml").split(f"{heading}\n")[1].split("\n\n")[0]
    return set(re.findall(r"^#   (\w+) = ", section, re.MULTILINE))


def test_page_and_example_agree_on_every_default() -> None:
    """Where the page shows a value, and not a word about where the default comes from."""
    tables = example()
    settings = {
        key: value
        for name, table in tables.items()
        if name not in ("values", "defaults")
        for key, value in table.items()
    }
    for heading, values in (("config.toml", settings), ("Job settings", tables["defaults"])):
        for key, shown in documented(heading).items():
            if shown.startswith("`") and shown.endswith("`") and key in values and shown != "`default_interval`":
                assert tomllib.loads(f"x = {shown.strip('`')}")["x"] == values[key], key


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
    blocks = re.findall(r"```toml\n(.*?)```", read("docs/how-to/not-be-woken.md"), re.DOTALL)
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
