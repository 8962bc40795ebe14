"""What the repository may hold, what no file in it may say, and that it does not grow."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

import spyweb
from tests.fakes.repository import ROOT, pages, read, tracked_files

TOP_LEVEL = {
    "pyproject.toml", "spyweb", "jobs", "tests", "config.example.toml", "README.md", "Makefile", "docs", "benchmarks",
    "deploy", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "constraints.txt", ".gitignore", ".dockerignore", ".ci",
}  # fmt: skip

# Written in two halves, so that this file does not name them either.
FOREIGN = re.compile(
    "|".join(["py" + r"pi\.org", "python" + r"hosted\.org", "index" + "-url", "extra" + "-index", "/wo" + r"rk/\w"])
)
BINARY = {".png", ".webp", ".jpg", ".ico", ".db"}


def test_the_top_level_holds_only_what_belongs_there() -> None:
    found = {path.relative_to(ROOT).parts[0] for path in tracked_files()}
    assert found <= TOP_LEVEL, found - TOP_LEVEL


def test_no_file_names_a_package_host_or_a_path_of_one_machine() -> None:
    named = [
        f"{path.relative_to(ROOT)}: {found[0]}"
        for path in tracked_files()
        if path.suffix not in BINARY
        for found in [FOREIGN.search(path.read_text(encoding="utf-8", errors="replace"))]
        if found
    ]
    assert not named


def test_every_test_that_the_makefile_names_is_there() -> None:
    named = re.findall(r"\btests/[\w/.]+", read("Makefile"))
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_the_changelog_has_this_version() -> None:
    assert re.search(rf"^## {re.escape(spyweb.__version__)}\b", read("CHANGELOG.md"), re.MULTILINE)


def test_the_readme_stays_within_two_screens() -> None:
    shown, heading, _ = read("README.md").partition("\n## Where to read on\n")
    assert heading
    assert len(shown.split()) <= 900, "details belong on a page of docs/"


def test_every_pin_is_a_version_and_every_dependency_is_pinned() -> None:
    lines = [line for line in read("constraints.txt").splitlines() if line and not line.startswith("#")]
    pinned = dict(line.split("==") for line in lines)
    project = tomllib.loads(read("pyproject.toml"))["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["dev"]]
    names = {re.split(r"[<>=!;\[ ]", need)[0].lower() for need in wanted}
    assert names <= pinned.keys(), names - pinned.keys()


def test_pages_cite_names_and_never_line_numbers() -> None:
    """Line numbers went stale in every project that cited them.  Problems in an example's output are no citation."""
    cited = [
        f"{page.relative_to(ROOT)}: {found[0]}"
        for page in pages()
        for found in re.finditer(r"\b[\w/]+\.py:\d+|\bline \d+ of\b", page.read_text(encoding="utf-8"))
    ]
    assert not cited


def test_each_decision_says_status_context_decision_consequences_and_measurement() -> None:
    for page in sorted((ROOT / "docs/design").glob("*.md")):
        text = page.read_text(encoding="utf-8")
        for part in ("Status", "Context", "Decision", "Consequences", "Measurement"):
            assert f"**{part}" in text, f"{page.name} has no {part}"
        assert len(text.splitlines()) < 70, f"{page.name} is longer than half a page or so"


def test_an_image_is_built_from_all_that_it_copies() -> None:
    copied = {
        name.removeprefix("./")
        for line in re.findall(r"^COPY (?!--from)(.*) \S+$", read("deploy/Containerfile"), re.M)
        for name in line.split()
    }
    kept = set(re.findall(r"^!(\S+)$", read(".dockerignore"), re.M))
    assert copied == kept


def test_compose_starts_the_same_image_on_the_same_port() -> None:
    compose = read("deploy/compose.yaml")
    assert "dockerfile: deploy/Containerfile" in compose
    assert '"127.0.0.1:${SPYWEB_PORT:-7979}:${SPYWEB_PORT:-7979}"' in compose
    assert "HEALTHCHECK" in read("deploy/Containerfile")


LIMITS = tomllib.loads(read("tests/docs/figures.toml"))


def lines_of(path: Path) -> int:
    return len(path.read_text().splitlines())


@pytest.mark.parametrize("folder", ["spyweb", "tests"])
def test_no_figure_has_risen(folder: str) -> None:
    lines = [lines_of(path) for path in tracked_files() if path.is_relative_to(ROOT / folder) and path.suffix == ".py"]
    found = {"lines": sum(lines), "modules": len(lines), "longest_module": max(lines)}
    risen = {name: f"{found[name]} instead of {limit}" for name, limit in LIMITS[folder].items() if found[name] > limit}
    assert not risen, (
        f"{folder}/ has grown: {risen}. What could go instead? CONTRIBUTING.md says how a figure is raised"
    )


def test_no_story_passes_through_more_files() -> None:
    """Of those that docs/architecture.md tells, and a daemon is led through."""
    _, _, stories = read("docs/architecture.md").partition("\n## The stories\n")
    told = re.findall(r"(?ms)^### ([^\n]+)\n(.*?)(?=^##)", stories)
    found = {name: len(set(re.findall(r"`([a-z_/]+\.(?:py|lua))\b", text))) for name, text in told}
    limits = LIMITS["stories"]
    assert {name: count for name, count in found.items() if count > limits.get(name, 0)} == {}
