"""Every link between pages leads somewhere, headings included."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.fakes.repository import ROOT, pages, read

_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+\s+(.*)$", re.MULTILINE)

EVERY_PAGE = [str(page.relative_to(ROOT)) for page in pages()]


def anchors(page: Path) -> set[str]:
    headings = _HEADING.findall(page.read_text(encoding="utf-8"))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("name", EVERY_PAGE)
def test_links_lead_somewhere(name: str) -> None:
    broken = []
    for target in _LINK.findall(read(name)):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        path = (ROOT / name).parent / file if file else ROOT / name
        if not path.exists() or (anchor and anchor not in anchors(path)):
            broken.append(target)
    assert not broken


def test_every_page_of_docs_can_be_reached_from_the_readme() -> None:
    seen, waiting = set(), [ROOT / "README.md"]
    while waiting:
        page = waiting.pop().resolve()
        if page in seen or page.suffix != ".md" or not page.exists():
            continue
        seen.add(page)
        targets = (target.partition("#")[0] for target in _LINK.findall(page.read_text(encoding="utf-8")))
        waiting += [page.parent / target for target in targets if target and ":" not in target]
    lonely = [name for name in EVERY_PAGE if name.startswith("docs/") and (ROOT / name).resolve() not in seen]
    assert not lonely


def test_the_index_of_the_documentation_links_every_page() -> None:
    """Of decisions architecture.md has the list."""
    linked = {(ROOT / "docs" / target.partition("#")[0]).resolve() for target in _LINK.findall(read("docs/README.md"))}
    pages_of_docs = [ROOT / name for name in EVERY_PAGE if name.startswith("docs/") and "/design/" not in name]
    assert [str(page) for page in pages_of_docs if page.name != "README.md" and page.resolve() not in linked] == []


def test_the_list_for_assistants_has_their_form_and_its_links_lead_somewhere() -> None:
    title, summary, *rest = [line for line in read("docs/llms.txt").splitlines() if line]
    assert title == "# spyweb"
    assert summary.startswith("> ")
    assert [line for line in rest[1:] if not re.match(r"## [A-Z]|- \[[^\]]+\]\([^)]+\): \S", line)] == []
    assert [target for target in _LINK.findall(read("docs/llms.txt")) if not (ROOT / "docs" / target).exists()] == []
