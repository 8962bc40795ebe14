"""No regular expression of the daemon tries again what it has tried, and no cache keeps texts without bound.

Two unbounded repeats next to each other that both match one character try every way to share a text between them; so
does one inside another.  An expression that is searched for, and begins with an unbounded repeat, starts anew at each
character.  Possessive repeats and atomic groups don't.  What is harmless all the same is listed, with the reason.
"""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator, Sequence
from functools import _lru_cache_wrapper
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.fakes.repository import ROOT

SAMPLE = [chr(code) for code in [*range(0x180), 0x2028, 0x4E2D, 0xDC80, 0x1F600]]
SEARCHES = ("search", "finditer", "findall", "sub", "subn", "split")
UNBOUNDED: int = re._constants.MAXREPEAT  # type: ignore[attr-defined]  # the parser that `re` itself uses

# module.name → why it can't be made to take long
HARMLESS = {
    "extraction.worker.charset._IN_PAGE": "is given 1,024 bytes, in a process without rights",
    "extraction.worker.document._TOKEN": "is given a selector, in a process without rights",
    "settings.tables._ENTRY": "ends with .*, which matches any rest of a line",
}

# module → what an expression is put together from there
PUT_TOGETHER = {
    "alerts.sender.redaction": "parts of an address, escaped, in a process of its own",
    "extraction.worker.document": "anything: it runs in a process that is killed when it takes too long",
    "ops.files.rotation": "the name of a file, escaped",
    "store.patterns": "limits.PATTERN, and each part is searched for once",
}

# module.name → what bounds what it is asked with, so what it keeps
CACHES = {
    "alerts.hooks.functions_in": "the code of jobs, of 64 at most",
    "dashboard.charts.strip": "a letter for each of the runs that are shown",
    "dashboard.render.renderer": "nothing",
    "dashboard.static_files.static_files": "nothing",
    "extraction.worker.document._is_field_wrong": "_LONGEST_REMEMBERED",
    "extraction.worker.document._is_wrong": "_LONGEST_REMEMBERED",
    "lua.wire._foreign": "_LONGEST_NAME",
    "lua.worker.values._text": "the names of ops, in a worker",
    "ops.dispatcher.free_ops": "the keys of permissions",
    "ops.network.client.machine_trust": "nothing",
    "permissions.hosts._read_host": "LONGEST_READ",
    "permissions.policy.policy_of": "what was parsed",
    "schedules.cron.parse_cron": "LONGEST_TEXT",
    "schedules.cron.slices": "a rule and a zone that were parsed",
    "schedules.due.schedule_text": "a schedule that was parsed",
    "schedules.words.cron_words": "LONGEST_TEXT",
    "schedules.zone.spans": "a zone that was parsed",
    "service.changes.index_of": "an address, as long as a request line may be",
    "settings.tables._loads": "TEXT_KEPT",
    "settings.units._sum_of_parts": "LONGEST_TEXT",
    "settings.values._has_zone": "LONGEST_ZONE",
    "specs.origins._keys": "two kinds of jobs",
    "specs.parse._prove_due": "LONGEST_TEXT of cron.py",
    "specs.parse._shared": "what was parsed",
    "store.patterns.compile_pattern": "limits.PATTERN",
    "views.jobs.describe_schedule": "a schedule that was parsed",
    "web.access.hosts.is_loopback": "limits.HOST, or the address of a peer",
    "web.api.query._fields": "a Struct of a handler",
    "web.pages.site.host_name": "nothing",
}


def modules() -> Iterator[ModuleType]:
    """All of them but those that a process begins with: these change what others find imported."""
    for path in sorted((ROOT / "spyweb").rglob("*.py")):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        if not name.endswith(("__main__", "__init__", ".zygote")):
            yield importlib.import_module(name)


def expressions() -> Iterator[tuple[str, re.Pattern[Any]]]:
    seen = set()
    for module in modules():
        for name, value in vars(module).items():
            for pattern in [value] if isinstance(value, re.Pattern) else patterns_in(value):
                if id(pattern) not in seen:
                    seen.add(id(pattern))
                    yield f"{module.__name__.removeprefix('spyweb.')}.{name}", pattern
        for _, written in asked_in_functions(module):
            if written is not None:
                yield f"{module.__name__.removeprefix('spyweb.')}, {written!r}", re.compile(written)


def asked_in_functions(module: ModuleType) -> Iterator[tuple[ast.expr, str | bytes | None]]:
    """What calls of `re` inside functions are given, and the expression, where it can be read off."""
    tree = ast.parse(Path(module.__file__ or "").read_text(encoding="utf-8"))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    for call in [node for function in functions for node in ast.walk(function) if isinstance(node, ast.Call)]:
        where = call.func.value if isinstance(call.func, ast.Attribute) else None
        if isinstance(where, ast.Name) and where.id == "re" and ast.unparse(call.func) != "re.escape":
            given = call.args[0]
            written = given.value if isinstance(given, ast.Constant) else getattr(module, ast.unparse(given), None)
            yield given, written if isinstance(written, str | bytes) else None


def patterns_in(value: object) -> Sequence[re.Pattern[Any]]:
    values = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple | set) else ()
    return [each for each in values if isinstance(each, re.Pattern)]


Parsed = tuple[Any, Any]  # an operation of the parser, and what it is about


def parse(pattern: re.Pattern[Any]) -> list[Parsed]:
    return list(re._parser.parse(pattern.pattern, pattern.flags))  # type: ignore[attr-defined]


def repeats_at_the_edges(sequence: Sequence[Parsed]) -> tuple[list[set[str]], list[set[str]], bool]:
    """What the unbounded repeats match with which this may begin and end, and whether it may be empty."""
    first: list[set[str]] = []
    last: list[set[str]] = []
    is_empty = True
    for item in sequence:
        begins, ends, may_be_empty = edges_of(item)
        if is_empty:
            first += begins
        last = last + ends if may_be_empty else ends
        is_empty = is_empty and may_be_empty
    return first, last, is_empty


def edges_of(item: Parsed) -> tuple[list[set[str]], list[set[str]], bool]:
    name, about = str(item[0]), item[1]
    match name:
        case "AT":
            return [], [], "BEGINNING" not in str(about)  # what is anchored begins once
        case "ASSERT" | "ASSERT_NOT" | "GROUPREF" | "GROUPREF_EXISTS":
            return [], [], True
        case "SUBPATTERN":
            return repeats_at_the_edges(list(about[-1]))
        case "ATOMIC_GROUP":
            return [], [], first_of(list(about))[1]
        case "POSSESSIVE_REPEAT":
            return [], [], about[0] == 0
        case "BRANCH":
            return edges_of_any([list(branch) for branch in about[1]])
        case "MAX_REPEAT" | "MIN_REPEAT":
            return edges_of_repeat(*about)
    return [], [], False


def edges_of_any(branches: Sequence[Sequence[Parsed]]) -> tuple[list[set[str]], list[set[str]], bool]:
    found = [repeats_at_the_edges(branch) for branch in branches]
    return (
        [each for begins, _, _ in found for each in begins],
        [each for _, ends, _ in found for each in ends],
        any(is_empty for _, _, is_empty in found),
    )


def edges_of_repeat(least: int, most: int, body: Any) -> tuple[list[set[str]], list[set[str]], bool]:
    if most is UNBOUNDED:
        return [first_of(list(body))[0]], [first_of(list(body), last=True)[0]], least == 0
    begins, ends, is_empty = repeats_at_the_edges(list(body))
    return begins, ends, is_empty or least == 0


def first_of(sequence: Sequence[Parsed], *, last: bool = False) -> tuple[set[str], bool]:
    """The characters of the sample with which what this matches may begin (or end), and whether it may be empty."""
    found: set[str] = set()
    for item in reversed(sequence) if last else sequence:
        characters, may_be_empty = first_of_one(item, last=last)
        found |= characters
        if not may_be_empty:
            return found, False
    return found, True


def first_of_one(item: Parsed, *, last: bool) -> tuple[set[str], bool]:
    name, about = str(item[0]), item[1]
    if name == "SUBPATTERN":
        return first_of(list(about[-1]), last=last)
    if name == "ATOMIC_GROUP":
        return first_of(list(about), last=last)
    if name == "BRANCH":
        found = [first_of(list(branch), last=last) for branch in about[1]]
        return set().union(*(characters for characters, _ in found)), any(is_empty for _, is_empty in found)
    if name.endswith("REPEAT"):
        characters, is_empty = first_of(list(about[2]), last=last)
        return characters, is_empty or about[0] == 0
    if name == "LITERAL":
        return {chr(about)}, False
    if name in ("NOT_LITERAL", "ANY", "IN"):
        return {char for char in SAMPLE if is_of(char, item)}, False
    return set(), True  # a place, not a character


def is_of(char: str, item: Parsed) -> bool:
    name, about = str(item[0]), item[1]
    if name == "NOT_LITERAL":
        return ord(char) != int(about)
    if name == "ANY":
        return char != "\n"
    is_negated = bool(about) and str(about[0][0]) == "NEGATE"
    return any(is_in(char, *part) for part in about) is not is_negated


def is_in(char: str, kind: object, about: Any) -> bool:
    match str(kind):
        case "LITERAL":
            return ord(char) == int(about)
        case "RANGE":
            return int(about[0]) <= ord(char) <= int(about[1])
        case "CATEGORY":
            meant = {"DIGIT": r"\d", "SPACE": r"\s", "WORD": r"\w"}
            category = str(about).removeprefix("CATEGORY_")
            return bool(re.match(meant[category.removeprefix("NOT_")], char)) is not category.startswith("NOT_")
    return False


def faults_of(sequence: Sequence[Parsed]) -> Iterator[str]:
    """What in this expression shares a text between two repeats."""
    yield from faults_between(sequence)
    for item in sequence:
        for part in parts_of(item):
            yield from faults_of(part)
        name, about = str(item[0]), item[1]
        if name in ("MAX_REPEAT", "MIN_REPEAT") and about[1] is UNBOUNDED:
            begins, ends, _ = repeats_at_the_edges(list(about[2]))
            if any(end & begin for end in ends for begin in begins):
                yield "a repeat whose body begins and ends with one"


def parts_of(item: Parsed) -> list[list[Parsed]]:
    name, about = str(item[0]), item[1]
    if name == "BRANCH":
        return [list(branch) for branch in about[1]]
    if name == "ATOMIC_GROUP":
        return [list(about)]
    if name == "SUBPATTERN":
        return [list(about[-1])]
    return [list(about[2])] if name.endswith("REPEAT") else []


def faults_between(sequence: Sequence[Parsed]) -> Iterator[str]:
    open_ends: list[set[str]] = []
    for item in sequence:
        begins, ends, may_be_empty = edges_of(item)
        for end in open_ends:
            for begin in begins:
                if end & begin:
                    yield f"two repeats that both match {min(end & begin)!r} and nothing that must stand between them"
        open_ends = open_ends + ends if may_be_empty else ends


def searched_names() -> set[tuple[str, str]]:
    """(module, name) of the expressions that are looked for anywhere in a text."""
    found = set()
    for path in sorted((ROOT / "spyweb").rglob("*.py")):
        module = ".".join(path.relative_to(ROOT / "spyweb").with_suffix("").parts)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and node.attr in SEARCHES and isinstance(node.value, ast.Name):
                found.add((module, node.value.id))
    return found


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)", 1),
        (r"[0-9]++\.?[0-9]*", 0),
        (r"[0-9]+\.[0-9]*", 0),
        (r"\s*--\s*///[ \t]*[ \t\r]*$", 1),
        (r"(a+)+", 1),
        (r"(?:a+,)+", 0),
        (r"[a-z]+[0-9]*", 0),
        (r"\w+\d*", 1),
        (r"(?>a+)a*", 0),
    ],
)
def test_what_shares_a_text_between_two_repeats_is_found(text: str, count: int) -> None:
    assert len(list(faults_of(parse(re.compile(text))))) == count


def test_no_expression_shares_a_text_between_two_repeats() -> None:
    faults = {name: list(faults_of(parse(pattern))) for name, pattern in expressions()}
    assert {name: found for name, found in faults.items() if found and name not in HARMLESS} == {}


def test_no_expression_that_is_searched_for_begins_with_an_unbounded_repeat() -> None:
    searched = searched_names()
    faults = {
        name: pattern.pattern
        for name, pattern in expressions()
        if tuple(name.rsplit(".", 1)) in searched and repeats_at_the_edges(parse(pattern))[0]
    }
    assert {name: text for name, text in faults.items() if name not in HARMLESS} == {}


def test_no_expression_is_put_together_from_what_others_chose_but_those_listed() -> None:
    found = {
        module.__name__.removeprefix("spyweb.")
        for module in modules()
        for _, written in asked_in_functions(module)
        if written is None
    }
    assert sorted(found) == sorted(PUT_TOGETHER)


def caches() -> Iterator[str]:
    for module in modules():
        for name, value in vars(module).items():
            if isinstance(value, _lru_cache_wrapper) and value.__module__ == module.__name__:
                yield f"{module.__name__.removeprefix('spyweb.')}.{name}"


def test_what_every_cache_is_asked_with_is_bounded() -> None:
    assert sorted(caches()) == sorted(CACHES)


def test_the_lists_are_in_order_and_say_why() -> None:
    for listed in (HARMLESS, PUT_TOGETHER, CACHES):
        assert all(first < second for first, second in pairwise(listed))
        assert all(listed.values())
