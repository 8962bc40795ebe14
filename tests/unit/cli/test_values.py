"""Values for a script from the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from spyweb.cli.values import given_values, read_values
from spyweb.errors import ConfigError, Refused


def test_a_later_variable_is_stronger_and_a_file_the_weakest(tmp_path: Path) -> None:
    (tmp_path / "prod.toml").write_text("a = 0\nb.c = 0\nd = 0\n")
    assert given_values(tmp_path / "prod.toml", ["a=1", "b.c=2", "a=3"]) == {"a": 3, "b": {"c": 2}, "d": 0}
    assert given_values(None, []) == {}


@pytest.mark.parametrize("variable", ["a", f"a={'x' * 70_000}"])
def test_what_can_not_be_given_is_refused(variable: str) -> None:
    with pytest.raises(Refused):
        given_values(None, [variable])


def test_a_file_of_values(tmp_path: Path) -> None:
    (tmp_path / "prod.toml").write_text('host = "web1"\n[db]\nport = 5432\n')
    assert read_values(tmp_path / "prod.toml") == {"host": "web1", "db": {"port": 5432}}


@pytest.mark.parametrize("content", [None, b"host = ", b"\xff\xfe"])
def test_a_file_that_is_none_is_told_with_its_name(content: bytes | None, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "prod.toml").write_bytes(content)
    with pytest.raises(ConfigError, match=r"prod\.toml"):
        read_values(tmp_path / "prod.toml")
