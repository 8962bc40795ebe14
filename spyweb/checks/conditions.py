"""Check the text of a condition before anything runs it.

A condition is one Lua expression over a few names: comparisons, arithmetic, fields, and the methods of texts.  What is
accepted here also compiles in Lua; tables, functions and comments, which no condition needs, are refused.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from spyweb.settings.reading import nearest

LONGEST, MOST_WORDS = 500, 100  # characters; Lua allows some 200 levels
METHODS = "byte char find format gmatch gsub len lower match pack packsize rep reverse split sub unpack upper"

_ESCAPE = r"""\\(?:[abfnrtv\\"']|z\s*+|x[\da-fA-F]{2}|25[0-5]|2[0-4]\d|[01]\d\d|\d\d?(?!\d)|u\{[\da-fA-F]{1,7}\})"""
_WORD = re.compile(
    r"\s*(?:(?P<member>\.\s*|:\s*)?(?P<name>[A-Za-z_]\w*)"
    r"|(?P<K>(?:0[xX](?:[\da-fA-F]+\.?[\da-fA-F]*|\.[\da-fA-F]+)(?:[pP][+-]?\d+)?"
    r"|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)(?![\w.]))"
    rf"""|(?P<S>"(?:[^"\\\r\n]|{_ESCAPE})*"|'(?:[^'\\\r\n]|{_ESCAPE})*')"""
    r"|(?P<o>\.\.(?!\.)|[=~<>]=|//|<<|>>|&(?!&)|\|(?!\|)|[+*/%^<>])|(?P<m>-(?!-)|~)|(?P<u>#)|(?P<bracket>[()\[\],])|(?P<other>\S+))",
    re.ASCII,
)
_KINDS = {"and": "o", "or": "o", "not": "u", "nil": "K", "true": "K", "false": "K"}
_STATEMENTS = "break do else elseif end for function goto if in local repeat return then until while"
_INSTEAD = {"=": "==", "!": "~=", "&&": "and", "||": "or"}  # by how a word begins
_EXPRESSION = "[mu]*[PKS](?:[om][mu]*[PKS])*"
_PART = re.compile(rf"P\.|P:(?:S|\((?:{_EXPRESSION}(?:,{_EXPRESSION})*)?\))|P\[{_EXPRESSION}\]|(?<!:)\({_EXPRESSION}\)")


def find_problem(text: str, names: Collection[str]) -> str:
    """Return why a text is no expression over these names; empty where it is one."""
    if len(text) > LONGEST:
        return f"a condition has at most {LONGEST} characters, not {len(text)}"
    if not text.replace("\n", " ").replace("\t", " ").isprintable():
        return "a condition can't hold control characters"
    words = list(_WORD.finditer(text))
    if len(words) > MOST_WORDS:
        return f"a condition has at most {MOST_WORDS} words and signs, not {len(words)}"
    shown = " ".join(text.split())[:80] or "a blank text"
    if reason := next(_doubts(words, names), ""):
        return f"{shown}: {reason}"
    kinds, shorter = "", "".join(map(_kind, words))  # of the words: `P` is a name, or what is taken from one
    while kinds != shorter:
        kinds, shorter = shorter, _PART.sub("P", shorter)
    return "" if re.fullmatch(_EXPRESSION, kinds) else f"{shown}: it is no whole expression of Lua"


def _kind(word: re.Match[str]) -> str:
    if word["name"]:
        return (word["member"] or "").strip() or _KINDS.get(word["name"], "P")
    return word["bracket"] or word.lastgroup or ""


def _doubts(words: Collection[re.Match[str]], names: Collection[str]) -> Iterator[str]:
    for word in words:
        name, member, other = word["name"], word["member"], word["other"]
        if other:
            instead = next((lua for sign, lua in _INSTEAD.items() if other.startswith(sign)), "")
            yield f"{other[:20]} is not for a condition" + (f": write {instead}" if instead else "")
        elif name in _STATEMENTS.split() or (member and name in _KINDS):
            yield f"{name} is not for a condition, which is one expression"
        elif member and ":" in member and name not in METHODS.split():
            yield f"texts have no method {name[:80]}{nearest(name, METHODS.split())}"
        elif name and not member and name not in names and name not in _KINDS:
            known = ", ".join(names)
            yield f"unknown name {name[:80]}{nearest(name, names) or f'; there are {known}'}"
