"""What a field's selector means: the item itself and what is in it, or, after + and ~, what follows the item.

Lexbor takes neither :scope nor a selector that begins with a combinator.  So the item is marked while its siblings are
searched, and the mark put in front.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

MARK = "spyweb-item"  # an attribute

_TOKEN = re.compile(
    r"""(?s)/\*.*?(?:\*/|\Z) | \\. | "(?:\\.|[^"\\])*"? | '(?:\\.|[^'\\])*'? | [^\\"'/()\[\],]+ | .""", re.VERBOSE
)


@dataclass(frozen=True, slots=True)
class FieldSelector:
    inside: str | None  # tried on the item and what is in it
    after: str | None  # tried on the item's following siblings and what is in them
    reach: int | None  # how many of those can matter; None: all


def split(selector: str) -> FieldSelector:
    """Sorts the parts of a selector list.  What is wrong with them is left to the parser."""
    if "+" not in selector and "~" not in selector:
        return FieldSelector(selector, None, None)
    parts = _split_list(selector)
    after = [part for part in parts if part.startswith(("+", "~"))]
    if not after:
        return FieldSelector(selector, None, None)
    inside = [part for part in parts if not part.startswith(("+", "~"))]
    following = ", ".join(f"[{MARK}] {part}" for part in after)
    reach = None if "~" in following else following.count("+")  # each + takes one step at most
    return FieldSelector(", ".join(inside) if inside else None, following, reach)


def _split_list(selector: str) -> list[str]:
    """At the commas that are in no brackets and no string."""
    parts, depth = [""], 0
    for token in _TOKEN.findall(selector):
        depth += token in ("(", "[")
        depth -= token in (")", "]")
        if token == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += "" if token.startswith("/*") else token
    return [part.strip() for part in parts]
