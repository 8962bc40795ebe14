"""Split a field's selector into parts for the item and its content, and parts, after + and ~, for what follows it.

Lexbor accepts neither :scope nor a selector that begins with a combinator.  So the item gets a mark, an attribute,
while such a selector is tried, and the selector names the mark.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

MARK = "spyweb-item"  # an attribute

_TOKEN = re.compile(
    r"""(?s)/\*.*?(?:\*/|\Z) | \\. | "(?:\\.|[^"\\])*"? | '(?:\\.|[^'\\])*'? | [^\\"'/()\[\],]+ | .""", re.VERBOSE
)
_SCOPE = re.compile(r":scope(?![\w-])", re.IGNORECASE)
_RELATIVE = re.compile(rf"(?:\[{MARK}\]\s*)?([>+~])")  # the beginning of a part that starts from the item


@dataclass(frozen=True, slots=True)
class FieldSelector:
    inside: str | None  # tried on the item and its descendants
    after: str | None  # tried on the item's following siblings and their descendants
    reach: int | None  # how many of those siblings can match; None: all
    names_item: bool = False  # `inside` names the item by its mark


def split(selector: str) -> FieldSelector:
    """Sort the parts of a selector list.  The parser reports what is wrong with them."""
    inside: list[str] = []
    after: list[str] = []
    for part in _parts(selector):
        (after if part.startswith((f"[{MARK}] +", f"[{MARK}] ~")) else inside).append(part)
    following = ", ".join(after)
    reach = None if "~" in following else following.count("+")  # each + takes one step at most
    names_item = any(f"[{MARK}]" in part for part in inside)
    if not after:
        return FieldSelector(", ".join(inside) if names_item else selector, None, None, names_item)
    return FieldSelector(", ".join(inside) if inside else None, following, reach, names_item)


def _parts(selector: str) -> Iterator[str]:
    """Yield the parts, with the item's mark in place of :scope and in front of a combinator."""
    for part in _split_list(selector):
        relative = _RELATIVE.match(part)
        yield f"[{MARK}] {part[relative.start(1) :]}" if relative else part


def _split_list(selector: str) -> list[str]:
    """Split a list at the commas that are not in brackets or strings."""
    parts, depth, in_attribute = [""], 0, False
    for token in _TOKEN.findall(selector):
        depth += token in ("(", "[")
        depth -= token in (")", "]")
        in_attribute = token == "[" or (in_attribute and token != "]")
        if token == "," and depth == 0:
            parts.append("")
        elif not token.startswith("/*"):
            parts[-1] += token if in_attribute or token[0] in "\"'\\" else _SCOPE.sub(f"[{MARK}]", token)
    return [part.strip() for part in parts]
