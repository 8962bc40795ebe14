from __future__ import annotations

import pytest

from spyweb.errors import Problem
from spyweb.specs.block import Block, code_of_file, find_misplaced_block, read_block


def block(source: str | bytes) -> Block:
    read = read_block(source if isinstance(source, bytes) else source.encode(), "jobs/a.lua")
    assert isinstance(read, Block), read
    return read


def problem(source: str | bytes) -> str:
    read = read_block(source if isinstance(source, bytes) else source.encode(), "jobs/a.lua")
    assert isinstance(read, Problem), read
    return str(read)


BLOCK = '-- /// job\n-- every = "30s"\n-- ///\n'


@pytest.mark.parametrize(
    "source",
    [
        BLOCK + "print(1)",
        "#!/usr/bin/lua\n" + BLOCK,
        "\n  \n-- What it does.\n" + BLOCK,
        "--[[ long\ncomment ]]\n" + BLOCK,
        "--[==[ with ]] and -- /// job inside\n-- /// job\n]==]\n" + BLOCK,
        BLOCK.replace("\n", "\r\n"),
        BLOCK.replace("-- ", "--"),
        BLOCK.replace("-- every", "  --   every"),
        BLOCK.rstrip(),
        "--///job\n--every='30s'\n--///",
    ],
)
def test_the_block_is_read_from_the_comments_at_the_top(source: str) -> None:
    assert block(source).table.values == {"every": "30s"}


@pytest.mark.parametrize(
    "source",
    [
        *("", "print(1)", "-- a comment\n", "--[[ never ended\n" + BLOCK, "#!lua", "--[[\n" + BLOCK + "]]\nx = 1"),
        "-- /// job\n-- ///",
    ],
)
def test_a_file_without_a_block_has_an_empty_one(source: str) -> None:
    assert block(source).table.values == {}


def test_a_key_s_line_is_the_line_in_the_lua_file_also_after_toml_over_several_lines() -> None:
    table = block('#!lua\n\n-- /// job\n-- # why\n-- tags = [\n--   "a",\n-- ]\n--\n-- timeout = 2\n-- ///\n').table
    assert table.values == {"tags": ["a"], "timeout": 2}
    assert str(table.problem("bad", "timeout")) == "jobs/a.lua:9: timeout: bad"


@pytest.mark.parametrize(
    "source",
    [
        "\n-- /// job\n-- every = 1\n",
        "\n-- /// job\n-- every = 1\nprint(1)\n-- ///\n",
        "\n-- /// job\n-- every = 1\n\n-- ///\n",
        "\n-- /// job\n-- every = 1\n-- /// job\n-- ///\n",
        "\n-- /// job\n" + "-- # and so on\n" * 6_000,
    ],
)
def test_a_block_without_an_end_is_a_problem_with_its_line(source: str) -> None:
    assert problem(source) == 'jobs/a.lua:2: the block that "-- /// job" begins is not ended by "-- ///"'


@pytest.mark.parametrize(
    ("source", "told"),
    [
        (b"-- x\n-- /// job\n-- every = 1\n-- timeout = = 2\n-- ///", "4: not valid TOML"),
        *[
            (
                b"-- /// %s\n-- every = 1\n-- ///" % mark,
                f'1: "-- /// {mark.decode()}" begins no block; expected "-- /// job"',
            )
            for mark in (b"jobs", b"", b"script", b"Job")
        ],
        (b'-- /// job\n-- every = 1\n-- name = "\xff"\n-- ///', "3: the settings block is not UTF-8 text"),
        (b"--- /// job\n-- every = 9\n-- ///\n", '1: this begins no block of settings; expected "-- /// job"'),
    ],
)
def test_what_is_wrong_with_a_block_is_told_with_the_line_in_the_lua_file(source: bytes, told: str) -> None:
    assert problem(source).startswith(f"jobs/a.lua:{told}")


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("x = 1\n" + BLOCK, 2),
        (BLOCK + BLOCK, 4),
        ("--[[\n" + BLOCK + "]]", 2),
        (BLOCK + "-- see https:///x", None),
        (BLOCK, None),
        ("x = 1", None),
    ],
)
def test_a_block_in_the_wrong_place_is_found(source: str, line: int | None) -> None:
    assert find_misplaced_block(source.encode(), block(source).end) == line


def code(source: str) -> bytes:
    return code_of_file(source.encode(), block(source))


def test_versions_that_differ_in_their_settings_alone_have_the_same_code_unless_lines_have_moved() -> None:
    first, second = (f"-- /// job\n-- every = {seconds}\n-- ///\nlog(1)\n" for seconds in (1, "'5m'  # slower"))
    assert code(first) == code(second) == b"-- /// job\n\n\nlog(1)\n"
    assert code(first) != code(first + "log(2)")
    assert code("log(1)") == b"log(1)"
    assert code(first) != code("-- /// job\n-- every = 1\n-- tags = []\n-- ///\nlog(1)\n")
