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


def linked_from(name: str) -> set[Path]:
    return {(ROOT / name).parent.joinpath(target.partition("#")[0]).resolve() for target in _LINK.findall(read(name))}


def test_the_index_links_every_page_of_docs_and_the_architecture_every_decision() -> None:
    index, reasons = linked_from("docs/README.md"), linked_from("docs/architecture.md")
    pages_of_docs = [ROOT / name for name in EVERY_PAGE if name.startswith("docs/")]
    lonely = [page for page in pages_of_docs if page not in (reasons if page.parent.name == "design" else index)]
    assert lonely == [ROOT / "docs/README.md"]
    assert lonely[0] in linked_from("README.md")


def test_the_list_for_assistants_leads_somewhere() -> None:
    assert read("docs/llms.txt").startswith("# spyweb\n\n> ")
    assert [page for page in linked_from("docs/llms.txt") if not page.exists()] == []
