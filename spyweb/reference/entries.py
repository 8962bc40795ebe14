"""The values of the reference, and the notation that its entries are written in.

    json_encode(value: any, empty_as_array?: boolean): string text

Types are LuaLS's own: `T?` is T or nil.  A result may have a name, which is its last word.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec import Struct

_SIGNATURE = re.compile(r"(?P<name>[\w.]*)\((?P<rest>.*)", re.DOTALL)
_NAMED_RESULT = re.compile(r"(?P<type>.*\S)\s+(?P<name>[a-z_]\w*)", re.DOTALL)
_OPEN, _CLOSED = "([{<", ")]}>"


class Argument(Struct, frozen=True):
    """A parameter, or a field of a table."""

    name: str  # "..." for any number
    type: str
    optional: bool = False
    text: str = ""

    @property
    def shown(self) -> str:
        return f"{self.name}?" if self.optional else self.name


class ResultType(Struct, frozen=True):
    type: str
    name: str = ""


class Function(Struct, frozen=True, kw_only=True):
    name: str
    arguments: tuple[Argument, ...]
    results: tuple[ResultType, ...]
    text: str
    waits: bool = False  # suspends the script
    overloads: tuple[str, ...] = ()  # other ways to call it, as LuaLS types

    @property
    def usage(self) -> str:
        return f"{self.name}({', '.join(argument.shown for argument in self.arguments)})"


class Family(Struct, frozen=True, kw_only=True):
    """Functions that belong together, under one name."""

    name: str
    functions: tuple[Function, ...]
    errors: str  # what becomes of what goes wrong


class TableType(Struct, frozen=True, kw_only=True):
    """A table with known fields."""

    name: str
    text: str
    fields: tuple[Argument, ...]


def function(signature: str, text: str, *, waits: bool = False, overloads: tuple[str, ...] = ()) -> Function:
    found = _SIGNATURE.fullmatch(signature)
    if not found:
        raise ValueError(f"not a signature: {signature}")
    arguments, results = _halves(found["rest"])
    return Function(
        name=found["name"],
        arguments=tuple(argument(each) for each in split(arguments)),
        results=tuple(result(each) for each in split(results)),
        text=text,
        waits=waits,
        overloads=overloads,
    )


def argument(notation: str, text: str = "") -> Argument:
    name, _, kind = notation.partition(":")
    name = name.strip()
    return Argument(name.removesuffix("?"), kind.strip() or "any", name.endswith("?"), text)


def result(notation: str) -> ResultType:
    named = _NAMED_RESULT.fullmatch(notation)
    return ResultType(named["type"], named["name"]) if named else ResultType(notation)


def _halves(rest: str) -> tuple[str, str]:
    """Split a signature into its parameters and what follows the colon behind them."""
    depth = 1
    for at, sign in enumerate(rest):
        depth += (sign in _OPEN) - (sign in _CLOSED)
        if depth == 0:
            return rest[:at], rest[at + 1 :].strip().removeprefix(":").strip()
    raise ValueError(f"a parenthesis is not closed: ({rest}")


def split(text: str) -> Iterator[str]:
    """Split a text at its commas, but not at those within brackets."""
    depth, begun = 0, 0
    for at, sign in enumerate(text):
        depth += (sign in _OPEN) - (sign in _CLOSED)
        if sign == "," and depth == 0:
            yield text[begun:at].strip()
            begun = at + 1
    if text[begun:].strip():
        yield text[begun:].strip()


def in_one_line(paragraphs: str) -> str:
    return " ".join(paragraphs.split())
