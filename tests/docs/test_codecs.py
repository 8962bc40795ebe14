"""The server decodes nothing by a codec that a client names: punycode alone holds the loop for a minute."""

from __future__ import annotations

import ast

from tests.fakes.repository import modules, read

# Parts of aiohttp's requests that do so; in their place are those of web/body.py.
METHODS = {"post", "text", "json", "multipart"}
PROPERTIES = {"charset", "content_type"}


def decoding(path: str, tree: ast.Module) -> list[str]:
    """Return the places of a module that would decode so."""
    nodes = list(ast.walk(tree))
    called = [node.func for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
    read = [node for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)]
    found = [node for node in called if node.attr in METHODS] + [node for node in read if node.attr in PROPERTIES]
    return [f"{path}:{node.lineno}: {ast.unparse(node)}" for node in found]


def test_no_request_is_decoded_by_a_codec_that_it_names() -> None:
    of_web = [(path, tree) for path, tree in modules() if path.startswith(("spyweb/subjects/", "spyweb/web/"))]
    assert len(of_web) > 50
    assert [place for path, tree in of_web for place in decoding(path, tree)] == []


def test_what_decodes_so_is_found() -> None:
    client = "tests/fakes/client.py"
    found = {place.rpartition(" ")[2] for place in decoding(client, ast.parse(read(client)))}
    assert found == {"client.post", "answer.json", "answer.content_type"}
