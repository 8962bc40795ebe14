"""The server decodes nothing by a codec that a client names: punycode alone holds the loop for a minute."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.fakes.repository import ROOT

# Parts of aiohttp's requests that do so; in their place are those of web/body.py.
METHODS = {"post", "text", "json", "multipart"}
PROPERTIES = {"charset", "content_type"}


def decoding(path: Path) -> list[str]:
    """Return the places of a module that would decode so."""
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    called = [node.func for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
    read = [node for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)]
    found = [node for node in called if node.attr in METHODS] + [node for node in read if node.attr in PROPERTIES]
    return [f"{path.relative_to(ROOT)}:{node.lineno}: {ast.unparse(node)}" for node in found]


def test_no_request_is_decoded_by_a_codec_that_it_names() -> None:
    modules = list((ROOT / "spyweb/web").rglob("*.py"))
    assert len(modules) > 50
    assert [place for path in modules for place in decoding(path)] == []


def test_what_decodes_so_is_found() -> None:
    found = {place.rpartition(" ")[2] for place in decoding(ROOT / "tests/fakes/client.py")}
    assert found == {"client.post", "answer.json", "answer.content_type"}
