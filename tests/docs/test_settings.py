"""Every setting is on a page of the reference and in config.example.toml, with its default, and nothing else is."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from textwrap import dedent

import pytest

from docs.reference.generate import EXAMPLE, SETTINGS_PAGES, example, keys_of, parts_of, settings_part
from spyweb.ops.network.request import clean_headers
from spyweb.schedules.cron import ALIASES, parse_cron
from spyweb.settings.load import examine_settings, load_settings, section_keys
from spyweb.settings.units import parse_duration
from spyweb.specs.discover import scan
from spyweb.specs.parse import ANY, RUN_OUTCOMES
from tests.fakes.repository import ROOT, read

INDEX = "docs/reference/settings.md"
PAGES = {name.rsplit("/", 1)[1].removesuffix(".md"): read(name) for name in SETTINGS_PAGES}
_EXCERPT = re.compile(r"^ *```toml\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
_VARIABLE = re.compile(r"SPYWEB_[A-Z_]+")
_SENTENCE = re.compile(r"[.!?] +(?=[A-Z])")


def sections() -> list[str]:
    return [*section_keys(), "channels", "maintenance", "job", "check", "monitor"]


def shown() -> list[tuple[str, str]]:
    """Return each section with each of its keys that a page has a row of."""
    parts = [part.split() for page in PAGES.values() for kind, part in parts_of(page) if kind == "settings"]
    return [(section, key) for section, *keys in parts for key in keys or keys_of(section)]


def test_each_key_is_on_one_page() -> None:
    """Of a monitor those that other jobs do not have, with one that belongs to hooks."""
    others = keys_of("job").keys() - {"on_hook_error"}
    every = [(section, key) for section in sections() for key in keys_of(section) if section != "job"]
    wanted = {(section, key) for section, key in every if section != "monitor" or key not in others}
    assert sorted(shown()) == sorted(wanted | {("job", key) for key in others})


def test_the_index_leads_to_each_page_with_its_sections() -> None:
    for name, page in PAGES.items():
        row = next(line for line in read(INDEX).splitlines() if f"(settings/{name}.md)" in line)
        assert page.startswith("# Settings: ")
        for section in re.findall(r"^## (.*\[.*)", page, re.MULTILINE):
            assert set(section.split(", ")) <= set(row.split("| ")[-1].removesuffix(" |").split(", ")), section


@pytest.mark.parametrize("section", sections())
def test_a_key_is_described_in_one_sentence_and_its_default_is_right(section: str) -> None:
    for line in settings_part(section).splitlines()[2:]:
        key, default, text = (cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1])
        assert text, f"{section}.{key} has no description: reference/settings.toml"
        assert not _SENTENCE.search(text), f"{section}.{key}: {text}"
        if default and "VERSION" not in default:
            tomllib.loads(f"x = {default.strip('`')}")


def test_details_are_of_keys_that_the_page_has() -> None:
    for name, page in PAGES.items():
        keys = set(re.findall(r"^\| `([\w.]+)` \|", page, re.MULTILINE))
        named = {
            key
            for start in re.findall(r"^- ((?:\*\*[\w.]+\*\*(?:, )?)+)", page, re.MULTILINE)
            for key in re.findall(r"[\w.]+", start)
        }
        assert named <= keys, name


def test_the_example_is_as_it_would_be_made_now() -> None:
    assert read(EXAMPLE) == example(), "`make docs` writes it anew"


def test_the_words_that_a_value_may_be_made_of_are_documented() -> None:
    page, schedule = read(INDEX), PAGES["schedule"]
    units = re.search(r'`"250ms"`: (.*?) and `(\w+)`', page)
    assert units
    assert {*re.findall(r"`(\w+)`", units[1]), units[2]} == {"w", "d", "h", "m", "s", "ms"}
    assert all(parse_duration(f"1{unit}") for unit in re.findall(r"`(\w+)`", units[0]))
    assert set(re.findall(r"`(@\w+)`", schedule)) == ALIASES.keys() - {"@midnight", "@annually"}
    for fields in ("0 0 L * *", "0 0 * * mon#2"):
        parse_cron(fields)
    outcomes = PAGES["triggers"].split("An outcome is ", 1)[1].split(". ", 1)[0].replace("the script skipped", "")
    assert {*re.findall(r"`(\w+)`", outcomes)} == {*RUN_OUTCOMES, ANY}


def test_every_variable_is_documented() -> None:
    code = "".join(read(f"spyweb/{name}") for name in ("settings/load.py", "web/access/guard.py"))
    assert set(_VARIABLE.findall(code)) <= set(_VARIABLE.findall(read(INDEX)))


def test_what_spyweb_sent_can_be_sent_from_here(tmp_path: Path) -> None:
    (block,) = re.findall(r"```toml\n(.*?)```", read("docs/how-to/move-from-spyweb.md"), re.DOTALL)
    (tmp_path / "config.toml").write_text(block)
    sent = dict(load_settings(tmp_path, environ={}, flags={}).http.headers)
    assert len(sent) == 12
    assert "Chrome/" in sent["User-Agent"]
    assert clean_headers({name.encode(): value.encode() for name, value in sent.items()}) == sent


def excerpts_of_settings() -> list[tuple[str, str]]:
    """Return each excerpt of config.toml in the how-tos, with its page: it begins with a table, but not a monitor's."""
    pages = sorted((ROOT / "docs/how-to").glob("*.md"))
    blocks = [(page.name, block) for page in pages for block in _EXCERPT.findall(page.read_text("utf-8"))]
    return [(name, block) for name, block in blocks if re.match(r"(#.*\n)*\[(?!webhook)", dedent(block))]


@pytest.mark.parametrize(("page", "block"), excerpts_of_settings())
def test_each_excerpt_of_settings_in_a_how_to_is_right(page: str, block: str, tmp_path: Path) -> None:
    """With the channels that it names and another excerpt sets up, and the jobs of the page about quiet nights."""
    text = dedent(block)
    for name in ("phone", "ops", "boss"):
        text += "" if f"[channels.{name}]" in text else f'\n[channels.{name}]\nurl = "ntfy://x"\n'
    (tmp_path / "config.toml").write_text(text)
    (tmp_path / "jobs").mkdir()
    for name in ("backup", "backup_db", "web", "internet"):
        (tmp_path / f"jobs/{name}.lua").write_text("log('x')")
    settings, problems = examine_settings(tmp_path, environ={}, flags={})
    found = scan(tmp_path, settings)
    assert problems == ([*found.problems, *found.warnings] if page == "quiet-nights.md" else []) == []
