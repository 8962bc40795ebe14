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
    "source", ["", "print(1)", "-- a comment\n", "--[[ never ended\n" + BLOCK, "#!lua", "--[[\n" + BLOCK + "]]\nx = 1"]
)
def test_a_file_without_a_block_has_an_empty_one(source: str) -> None:
    assert block(source).table.values == {}


def test_an_empty_block_is_no_problem() -> None:
    assert block("-- /// job\n-- ///").table.values == {}


def test_a_key_s_line_is_the_line_in_the_lua_file() -> None:
    table = block("#!lua\n\n-- /// job\n-- # why\n-- every = 1\n--\n-- timeout = 2\n-- ///\n").table

    assert str(table.problem("bad", "timeout")) == "jobs/a.lua:7: timeout: bad"


def test_toml_over_several_lines_is_read() -> None:
    assert block('-- /// job\n-- tags = [\n--   "a",\n-- ]\n-- ///').table.values == {"tags": ["a"]}


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


def test_broken_toml_in_a_block_names_the_line_in_the_lua_file() -> None:
    assert problem("-- x\n-- /// job\n-- every = 1\n-- timeout = = 2\n-- ///").startswith(
        "jobs/a.lua:4: not valid TOML"
    )


@pytest.mark.parametrize("marker", ["jobs", "", "script", "Job"])
def test_a_marker_that_begins_no_block_is_a_problem(marker: str) -> None:
    assert 'begins no block; expected "-- /// job"' in problem(f"-- /// {marker}\n-- every = 1\n-- ///")


def test_a_block_that_is_not_utf8_names_the_line() -> None:
    assert problem(b'-- /// job\n-- every = 1\n-- name = "\xff"\n-- ///') == (
        "jobs/a.lua:3: the settings block is not UTF-8 text"
    )


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


def test_versions_that_differ_in_their_settings_alone_have_the_same_code() -> None:
    first, second = (f"-- /// job\n-- every = {seconds}\n-- ///\nlog(1)\n" for seconds in (1, "'5m'  # slower"))
    assert code(first) == code(second) == b"-- /// job\n\n\nlog(1)\n"
    assert code(first) != code(first + "log(2)")
    assert code("log(1)") == b"log(1)"


def test_a_line_more_in_the_settings_is_another_code_for_the_lines_below_have_moved() -> None:
    assert code("-- /// job\n-- every = 1\n-- ///\nlog(1)") != code(
        "-- /// job\n-- every = 1\n-- tags = []\n-- ///\nlog(1)"
    )


def test_a_block_whose_first_mark_is_nearly_right_is_told_at_that_mark() -> None:
    assert problem('--- /// job\n-- every = "30s"\n-- ///\n') == (
        'jobs/a.lua:1: this begins no block of settings; expected "-- /// job"'
    )
