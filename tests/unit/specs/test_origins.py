"""Where each setting of a job comes from, and that no secret is shown with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from spyweb.model import JobId
from spyweb.settings.load import load_settings
from spyweb.specs.discover import scan
from spyweb.specs.origins import OriginKind, ResolvedSetting, resolve_settings

CONFIG = """\
[defaults]
timeout = "90s"
retries = 2
values = { region = "eu", level = 1 }

[jobs.prices]
timeout = "20s"
values = { level = 3 }
"""
SCRIPT = """\
-- /// job
-- every = "5m"
-- retries = 4
-- values = { level = 2, password = "hunter2" }
-- ///
return 1
"""
MONITOR = """\
name = "Shop"
url = "https://anna:hunter2@shop.example/?page=1&api_key=hunter2"
selector = "li"
fields = ["title:a"]
headers = { Authorization = "Bearer hunter2", X-Mine = "hunter2", Accept = "text/html" }
webhook = { url = "https://hooks.example/hunter2", headers = { X-Sign = "hunter2" } }
"""


def resolved(root: Path, job: str) -> dict[str, ResolvedSetting]:
    settings = load_settings(root, environ={}, flags={})
    file = scan(root, settings).jobs[JobId(job)]
    found = resolve_settings(file.spec, file.sources, settings.permissions)
    return {setting.key: setting for setting in found}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "config.toml").write_text(CONFIG)
    (tmp_path / "jobs/prices.lua").write_text(SCRIPT)
    return tmp_path


def test_each_setting_names_the_strongest_source_that_has_it(root: Path) -> None:
    found = resolved(root, "prices")

    places = {key: (found[key].value, found[key].origin, found[key].file, found[key].line) for key in KEYS}
    assert places == {
        "timeout": ('"20s"', OriginKind.OVERRIDE, "config.toml", 7),
        "every": ('"5m"', OriginKind.FILE, "jobs/prices.lua", 2),
        "retries": ("4", OriginKind.FILE, "jobs/prices.lua", 3),
        "overlap": ('"skip"', OriginKind.BUILT_IN, "", None),
        "enabled": ("true", OriginKind.BUILT_IN, "", None),
        "permissions": ("{}", OriginKind.BUILT_IN, "", None),
    }
    assert found["timeout"].words == "config.toml:7, [jobs.prices]"
    assert found["every"].words == "jobs/prices.lua:2"
    assert found["overlap"].words == "built in"
    assert "cron" not in found


KEYS = ("timeout", "every", "retries", "overlap", "enabled", "permissions")


def test_what_a_weaker_source_has_is_not_named_where_a_stronger_hides_it(root: Path) -> None:
    (root / "config.toml").write_text('[defaults]\ncron = "0 3 * * *"\ntimeout = "90s"\n')
    found = resolved(root, "prices")
    assert "cron" not in found
    assert (found["timeout"].words, found["timeout"].value) == ("config.toml:3, [defaults]", '"90s"')


def test_values_are_those_of_all_sources_laid_over_each_other_without_secrets(root: Path) -> None:
    values = resolved(root, "prices")["values"]
    assert values.value == '{ region = "eu", level = 3, password = [hidden] }'
    assert values.words == "config.toml:8, [jobs.prices], over 2 more"


@pytest.mark.parametrize(
    ("config", "key", "words"),
    [
        ('[permissions]\nnet = ["a.example"]\n', "permissions", "config.toml, [permissions]"),
        ('[values]\nhost = "web1"\n', "values", "config.toml, [defaults] and [values]"),
    ],
)
def test_permissions_and_values_of_all_jobs_are_named(root: Path, config: str, key: str, words: str) -> None:
    (root / "config.toml").write_text(config)
    (root / "jobs/prices.lua").write_text("return 1")
    assert resolved(root, "prices")[key].words == words


def test_no_secret_of_a_monitor_is_shown(root: Path) -> None:
    (root / "jobs/shop").mkdir()
    (root / "jobs/shop/config.toml").write_text(MONITOR)
    found = resolved(root, "shop")

    assert "hunter2" not in "".join(setting.value for setting in found.values())
    assert found["url"].value == '"https://anna:[hidden]@shop.example/?page=1&api_key=[hidden]"'
    assert found["headers"].value == '{ Authorization = [hidden], X-Mine = "[hidden]", Accept = "text/html" }'
    assert found["webhook"].value.startswith('{ url = "https://hooks.example/[hidden]"')
    assert (found["selector"].file, found["selector"].line) == ("jobs/shop/config.toml", 3)


def test_a_job_of_the_list_names_the_list_and_its_line(root: Path) -> None:
    (root / "jobs.toml").write_text(
        '[[jobs]]\nname = "A"\nurl = "https://a.example"\nselector = "li"\nfields = ["t:a"]\n'
    )
    assert resolved(root, "a")["selector"].words == "jobs.toml:4"


def test_a_very_long_value_is_cut(root: Path) -> None:
    (root / "jobs/prices.lua").write_text(f'-- /// job\n-- description = "{"x" * 2000}"\n-- ///\n')
    assert len(resolved(root, "prices")["description"].value) == 500
