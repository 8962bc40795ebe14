"""A small project that works as it is, and the file of types for editors."""

from __future__ import annotations

import json
import os
import tomllib
from importlib.resources import files
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from spyweb.cli.init import TEMPLATES, ProjectKind, editor_files
from spyweb.permissions.policy import USUAL
from spyweb.reference.definitions import definitions
from spyweb.settings.load import load_settings
from spyweb.specs.discover import scan
from tests.fakes.command import spyweb
from tests.fakes.full_disk import file_size_limit
from tests.fakes.lua_text import compile_problem


def files_of(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}


@pytest.mark.parametrize("kind", list(ProjectKind))
def test_the_project_has_settings_jobs_and_what_git_should_ignore(kind: ProjectKind, tmp_path: Path) -> None:
    answer = spyweb("init", str(tmp_path / "new" / "project"), "--template", kind.value)
    assert answer.code == 0
    assert files_of(tmp_path / "new" / "project") == {*TEMPLATES[kind], *editor_files()}


@pytest.mark.parametrize(
    ("words", "jobs"),
    [
        ([], {"hello", "check_site", "page"}),
        (["--template", "monitor"], {"page"}),
        (["--template", "checks"], {"site", "certificate"}),
    ],
)
def test_everything_in_the_project_is_right(words: list[str], jobs: set[str], tmp_path: Path) -> None:
    spyweb("init", *words, root=tmp_path)
    settings = load_settings(tmp_path, environ={}, flags={})
    found = scan(tmp_path, settings)
    assert set(found.jobs) == jobs
    assert settings.permissions == USUAL  # told, and not changed
    assert "[permissions]" in (tmp_path / "config.toml").read_text()
    assert not [*found.problems, *found.warnings]


@pytest.mark.parametrize("name", ["hello.lua", "check-site.lua", "hooks.lua", "tests.lua"])
def test_every_lua_file_of_a_template_compiles(name: str) -> None:
    source = (files("spyweb.cli") / "template" / name).read_text()
    assert compile_problem(source, name) is None


def test_what_was_made_comes_as_json_too(tmp_path: Path) -> None:
    answer = spyweb("init", "--template", "monitor", "-o", "json", root=tmp_path)
    assert answer.json == {"project": str(tmp_path), "made": [*TEMPLATES[ProjectKind.MONITOR], *editor_files()]}


def test_the_next_step_can_be_typed_as_it_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = spyweb("init", str(tmp_path / "p"))
    assert answer.lines[-1] == (
        f"next: `spyweb -C {tmp_path}/p run hello` runs a job once, `spyweb -C {tmp_path}/p start` runs them all"
    )
    monkeypatch.chdir(tmp_path / "p")
    assert spyweb("init", "sub").lines[-1].startswith("next: `spyweb -C sub run hello`")
    assert spyweb("-C", "sub", "init", "more").lines[-1].startswith("next: `spyweb -C sub/more run hello`")


def test_nothing_is_overwritten_and_nothing_is_half_done(tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "hello.lua").write_text("mine")
    answer = spyweb("init", root=tmp_path)
    assert answer.code == 2
    assert answer.err == f"spyweb: {tmp_path} has jobs/hello.lua already: nothing was written\n"
    assert files_of(tmp_path) == {"jobs/hello.lua"}


def test_on_a_full_disk_nothing_is_half_done_either(tmp_path: Path) -> None:
    with file_size_limit(100):
        answer = spyweb("init", root=tmp_path)
    assert (answer.code, answer.err) == (2, f"spyweb: {tmp_path}: File too large\n")
    assert files_of(tmp_path) == set()
    (tmp_path / "jobs").write_text("in the way")
    assert spyweb("init", root=tmp_path).code == 2
    assert files_of(tmp_path) == {"jobs"}


def test_a_folder_that_can_not_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    answer = spyweb("init", str(tmp_path / "file" / "project"))
    assert answer.code == 2
    assert answer.err.endswith("Not a directory\n")


def test_a_folder_whose_name_is_not_utf8_is_told_in_json_too(tmp_path: Path) -> None:
    answer = spyweb("init", "-o", "json", root=made_folder(tmp_path / os.fsdecode(b"caf\xe9")))
    assert answer.code == 0
    assert "caf\\\\xe9" in answer.out


def made_folder(path: Path) -> Path:
    path.mkdir()
    return path


def test_an_editor_finds_types_and_schemas_at_once(tmp_path: Path) -> None:
    spyweb("init", "--template", "monitor", root=tmp_path)
    luarc = json.loads((tmp_path / ".luarc.json").read_text())
    assert luarc["runtime.version"] == "Lua 5.4"
    assert (tmp_path / "spyweb.d.lua").read_text() == spyweb("types", "-").out.removesuffix("\n")
    for rule in tomllib.loads((tmp_path / ".taplo.toml").read_text())["rule"]:
        schema = json.loads((tmp_path / rule["schema"]["path"]).read_text())
        for path in (path for pattern in rule["include"] for path in tmp_path.glob(pattern)):
            Draft202012Validator(schema).validate(tomllib.loads(path.read_text()))


def test_files_for_editors_that_are_there_stay_as_they_are(tmp_path: Path) -> None:
    (tmp_path / ".luarc.json").write_text("mine")
    (tmp_path / ".taplo.toml").symlink_to("nowhere")
    answer = spyweb("init", "-o", "json", root=tmp_path)
    assert answer.code == 0
    assert (tmp_path / ".luarc.json").read_text() == "mine"
    assert not (tmp_path / "nowhere").exists()
    assert not {".luarc.json", ".taplo.toml"} & set(answer.json["made"])
    assert (tmp_path / "spyweb.d.lua").is_file()


def test_the_file_is_made_where_editors_look_for_it(tmp_path: Path) -> None:
    answer = spyweb("types", root=tmp_path)
    assert (answer.code, answer.out) == (0, f"wrote {tmp_path / 'spyweb.d.lua'}\n")
    assert (tmp_path / "spyweb.d.lua").read_text() == definitions()
    assert spyweb("types", "-o", "json", root=tmp_path).json == {"wrote": str(tmp_path / "spyweb.d.lua")}


def test_an_older_one_is_replaced_and_nothing_else(tmp_path: Path) -> None:
    older, script = tmp_path / "spyweb.d.lua", tmp_path / "hello.lua"
    older.write_text("---@meta _\nold")
    script.write_text("log('hello')")

    assert spyweb("types", root=tmp_path).code == 0
    refused = spyweb("types", str(script))

    assert older.read_text() == definitions()
    assert refused.code == 2
    assert (
        refused.err == f"spyweb: {script} already exists and was not written by `spyweb types`: nothing was written\n"
    )
    assert script.read_text() == "log('hello')"


def test_a_place_that_can_not_be_written_to_is_one_line(tmp_path: Path) -> None:
    answer = spyweb("types", str(tmp_path / "no" / "x.lua"))
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.endswith("no/x.lua: No such file or directory\n")


def test_on_a_full_disk_an_older_one_stays_whole(tmp_path: Path) -> None:
    file = tmp_path / "spyweb.d.lua"
    file.write_text("---@meta _\nold")
    with file_size_limit(0):
        answer = spyweb("types", root=tmp_path)
    assert (answer.code, answer.err) == (2, f"spyweb: {file}: File too large\n")
    assert file.read_text() == "---@meta _\nold"
    assert list(tmp_path.iterdir()) == [file]
