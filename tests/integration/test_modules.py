"""crypto, data, template and file in real workers: what they hold up, and what ends them."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from spyweb.model import Outcome
from tests.fakes.repository import files_of
from tests.fakes.scripts import Scripts, open_scripts

PAGE = "docs/how-to/configuration-files.md"


@pytest.fixture
async def scripts(tmp_path: Path) -> AsyncIterator[Scripts]:
    async with open_scripts(tmp_path, workers=1) as scripts:
        yield scripts


async def test_hashes_work_in_callbacks_and_of_long_texts(scripts: Scripts) -> None:
    found = await scripts.succeed("""
      local words = {"b", "a", "c"}
      table.sort(words, function(x, y) return crypto.md5(x) < crypto.md5(y) end)
      local long = ("x"):rep(3 << 20)
      return {words, crypto.sha256(long), #crypto.base64_decode(crypto.base64_encode(long))}
    """)
    assert isinstance(found, list)
    assert found[0] == sorted([b"a", b"b", b"c"], key=lambda word: hashlib.md5(word).hexdigest())
    assert found[1] == hashlib.sha256(b"x" * (3 << 20)).hexdigest().encode()
    assert found[2] == 3 << 20
    ending = await scripts.run('return ("a"):gsub("a", function() return crypto.sha1(("x"):rep(3 << 20)) end)')
    assert "crypto can't be called inside a table.sort comparator" in ending.reason


async def test_a_template_bomb_is_its_jobs_own(scripts: Scripts) -> None:
    bomb = """
      local list = {} for i = 1, 1000 do list[i] = "%s" end
      local text = ("{{range $.l}}"):rep(9) .. "%s" .. ("{{end}}"):rep(9)
      return template.render{text = text, vars = {l = list}}
    """
    ending = await scripts.run(bomb % ("x" * 50_000, "{{.}}"))
    assert (ending.outcome, ending.failure and ending.failure.value) == (Outcome.FAILED, "memory")
    ending = await scripts.run(bomb % ("", "{{if .}}x{{end}}"), timeout_ms=500)
    assert (ending.outcome, ending.failure and ending.failure.value) == (Outcome.FAILED, "timeout")
    assert await scripts.succeed("return template.render{text = 'a{{.b}}', vars = {b = 1}}") == b"a1"


async def test_hostile_yaml_is_a_message(scripts: Scripts) -> None:
    found = await scripts.succeed("""
      local names = {"a: &a0 [x,x,x,x,x,x,x,x,x]"}
      for i = 1, 8 do names[#names + 1] = ("b%d: &a%d [%s]"):format(i, i, ("*a" .. i - 1 .. ","):rep(9)) end
      local _, brackets = data.parse_yaml(("["):rep(50000))
      local _, aliases = data.parse_yaml(table.concat(names, "\\n"))
      return {brackets, aliases, data.parse_yaml(data.to_yaml{a = {1, "x", true}})}
    """)
    assert isinstance(found, list)
    assert found[0] == b"line 1: more than 100 levels"
    assert found[1].endswith(b"more than 100000 nodes, with aliases expanded")
    assert found[2] == {b"a": [1, b"x", True]}


async def test_the_page_works_as_it_stands(scripts: Scripts, tmp_path: Path) -> None:
    files = dict(files_of(PAGE))
    source = files.pop("jobs/web-config.lua")
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert await scripts.succeed(source, "web-config") == {b"changed": 4}
    assert scripts.texts("info") == [
        "changed:\tfolder made, sites written, banner written, limit written",
    ]
    assert (tmp_path / "shared/web/sites/all.conf").read_text() == (
        "listen 8080 tls\nsite www.example.org root /srv/www port 8080\nsite example.org root /srv/old port 8080\n"
    )
    assert await scripts.succeed(source, "web-config") == {b"changed": 0}
