"""Byte code of templates beside their files."""

from __future__ import annotations

import sys
from pathlib import Path

import jinja2
import pytest

from spyweb.dashboard.compiled import CompiledTemplates


@pytest.fixture(autouse=True)
def writing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(sys, "pycache_prefix", None)


@pytest.fixture
def templates(tmp_path: Path) -> Path:
    (tmp_path / "page.html").write_text("hello {{ name }}")
    return tmp_path


def compiled(templates: Path) -> list[Path]:
    return sorted(templates.glob("__pycache__/*.pyc"))


def render(templates: Path) -> str:
    pages = jinja2.Environment(
        loader=jinja2.FileSystemLoader(templates), bytecode_cache=CompiledTemplates(templates), autoescape=True
    )
    return pages.get_template("page.html").render(name="<b>")


def test_a_template_is_compiled_once(templates: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert render(templates) == "hello &lt;b&gt;"
    assert len(compiled(templates)) == 1
    monkeypatch.setattr(jinja2.Environment, "compile", None)
    assert render(templates) == "hello &lt;b&gt;"


def test_another_text_is_compiled_anew(templates: Path) -> None:
    render(templates)
    (templates / "page.html").write_text("goodbye {{ name }}")
    assert render(templates) == "goodbye &lt;b&gt;"


def test_what_is_broken_is_compiled_anew(templates: Path) -> None:
    render(templates)
    compiled(templates)[0].write_bytes(b"nothing of the kind")
    assert render(templates) == "hello &lt;b&gt;"


def test_nothing_is_needed_where_nothing_can_be_written(templates: Path) -> None:
    (templates / "__pycache__").write_text("a file is in the way")
    assert render(templates) == "hello &lt;b&gt;"


def test_nothing_is_written_where_python_writes_none(templates: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    assert render(templates) == "hello &lt;b&gt;"
    assert not (templates / "__pycache__").exists()
