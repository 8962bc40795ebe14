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
from functools import _lru_cache_wrapper, cache
from types import ModuleType
from typing import Any

import pytest

from tests.fakes.repository import modules as sources
from tests.fakes.repository import nodes

SAMPLE = [chr(code) for code in [*range(0x180), 0x2028, 0x4E2D, 0xDC80, 0x1F600]]
SEARCHES = ("search", "finditer", "findall", "sub", "subn", "split")
UNBOUNDED: int = re._constants.MAXREPEAT  # type: ignore[attr-defined]  # the parser that `re` itself uses

# module.name → why it can't be made to take long
HARMLESS = {
    "checks.conditions._WORD": "is given LONGEST characters",
    "extraction.worker.document._IN_PAGE": "is given 1,024 bytes, in a process without rights",
    "extraction.worker.document._TOKEN": "is given a selector, in a process without rights",
    "settings.tables._ENTRY": "ends with .*, which matches any rest of a line",
}

# module → what an expression is put together from there
PUT_TOGETHER = {
    "outbox.redaction": "parts of an address, escaped, in a process of its own",
    "extraction.worker.document": "anything: it runs in a process that is killed when it takes too long",
    "ops.files.files": "the name of a file, escaped",
    "store.patterns": "limits.PATTERN, and each part is searched for once",
}

# module.name → what bounds what it is asked with, so what it keeps
CACHES = {
    "alerts.measures.functions_in": "the code of jobs, of 64 at most",
    "checks.settings.script_of": "a kind of check",
    "events.changes.index_of": "an address, as long as a request line may be",
    "extraction.worker.document._is_wrong": "_LONGEST_REMEMBERED",
    "lua.wire._foreign": "_LONGEST_NAME",
    "lua.worker.executor._text": "the names of ops, in a worker",
    "ops.dispatcher.free_ops": "the keys of permissions",
    "ops.network.certificate.trusting_context": "nothing",
    "ops.network.certificate.machine_trust": "nothing, or HTTP",
    "permissions.hosts._read_host": "LONGEST_READ",
    "permissions.policy.policy_of": "what was parsed",
    "schedules.cron.parse_cron": "LONGEST_TEXT",
    "schedules.cron.slices": "a rule and a zone that were parsed",
    "schedules.cron.spans": "a zone that was parsed",
    "schedules.due.schedule_text": "a schedule that was parsed",
    "settings.tables._loads": "TEXT_KEPT",
    "settings.units._sum_of_parts": "LONGEST_TEXT",
    "settings.values._has_zone": "LONGEST_ZONE",
    **{f"settings.values.{name}": "limits in the code" for name in ("duration", "line", "one_of", "or_word", "size")},
    "settings.values.whole": "limits in the code",
    "specs.parse.job_keys": "two kinds of jobs",
    "specs.parse._prove_due": "LONGEST_TEXT of cron.py",
    "specs.parse._shared": "what was parsed",
    "store.patterns.compile_pattern": "limits.PATTERN",
    "store.postgres.texts.translate": "the store's own texts",
    "views.jobs.describe_schedule": "a schedule that was parsed",
    "web.access.headers.is_loopback": "limits.HOST, or the address of a peer",
    "web.api.query._fields": "a Struct of a handler",
    "web.pages.charts.strip": "a letter for each of the runs that are shown",
    "web.pages.site.renderer": "nothing",
    "web.pages.site.static_files": "nothing",
}


def modules() -> Iterator[tuple[ModuleType, ast.Module]]:
    """All of them but those that a process begins with: these change what others find imported."""
    for path, tree in sources():
        name = path.removesuffix(".py").replace("/", ".")
        if not name.endswith(("__main__", "__init__", ".zygote")):
            yield importlib.import_module(name), tree


@cache
def expressions() -> tuple[tuple[str, re.Pattern[Any]], ...]:
    return tuple(find_expressions())


def find_expressions() -> Iterator[tuple[str, re.Pattern[Any]]]:
    seen = set()
    for module, tree in modules():
        for name, value in vars(module).items():
            for pattern in [value] if isinstance(value, re.Pattern) else patterns_in(value):
                if id(pattern) not in seen:
                    seen.add(id(pattern))
                    yield f"{module.__name__.removeprefix('spyweb.')}.{name}", pattern
        for written in asked_in_functions(module, tree):
            if written is not None:
                yield f"{module.__name__.removeprefix('spyweb.')}, {written!r}", re.compile(written)


@cache
def asked_in_functions(module: ModuleType, tree: ast.Module) -> Sequence[str | bytes | None]:
    """Return what calls of `re` inside functions are given, where it can be read off."""
    asked: list[str | bytes | None] = []
    functions = [node for node in nodes(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    for call in [node for function in functions for node in nodes(function) if isinstance(node, ast.Call)]:
        where = call.func.value if isinstance(call.func, ast.Attribute) else None
        if isinstance(where, ast.Name) and where.id == "re" and ast.unparse(call.func) != "re.escape":
            given = call.args[0]
            written = given.value if isinstance(given, ast.Constant) else getattr(module, ast.unparse(given), None)
            asked.append(written if isinstance(written, str | bytes) else None)
    return asked


def patterns_in(value: object) -> Sequence[re.Pattern[Any]]:
    values = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple | set) else ()
    return [each for each in values if isinstance(each, re.Pattern)]


Parsed = tuple[Any, Any]  # an operation of the parser, and what it is about


def parse(pattern: re.Pattern[Any]) -> list[Parsed]:
    return list(re._parser.parse(pattern.pattern, pattern.flags))  # type: ignore[attr-defined]


def parts_of(item: Parsed) -> list[list[Parsed]]:
    name, about = str(item[0]), item[1]
    if name == "BRANCH":
        return [list(branch) for branch in about[1]]
    if name == "ATOMIC_GROUP":
        return [list(about)]
    if name == "SUBPATTERN":
        return [list(about[-1])]
    return [list(about[2])] if name.endswith("REPEAT") else []


def is_unbounded(item: Parsed) -> bool:
    """Return whether this repeats without bound, and gives back what it has matched."""
    return str(item[0]) in ("MAX_REPEAT", "MIN_REPEAT") and item[1][1] is UNBOUNDED


def characters_of(item: Parsed) -> set[str]:
    """Return those of the sample that a single operation matches; none where it is a place."""
    if str(item[0]) not in ("LITERAL", "NOT_LITERAL", "ANY", "IN"):
        return set()
    alone = re._parser.SubPattern(re._parser.State(), [item])  # type: ignore[attr-defined]
    matches = re._compiler.compile(alone).match  # type: ignore[attr-defined]
    return {char for char in SAMPLE if matches(char)}


def edge_of(sequence: Sequence[Parsed], *, last: bool = False) -> tuple[set[str], bool]:
    """Return the characters with which what this matches may begin (or end), and whether it may be empty."""
    found: set[str] = set()
    for item in reversed(sequence) if last else sequence:
        inner = [edge_of(part, last=last) for part in parts_of(item)] or [(characters_of(item), False)]
        characters = set().union(*(each for each, _ in inner))
        is_optional = str(item[0]).endswith("REPEAT") and item[1][0] == 0
        found |= characters
        if characters and not is_optional and not any(is_empty for _, is_empty in inner):
            return found, False
    return found, True


def repeats_at(sequence: Sequence[Parsed], *, last: bool = False) -> list[set[str]]:
    """Return what the unbounded repeats match with which what this matches may begin (or end)."""
    found: list[set[str]] = []
    for item in reversed(sequence) if last else sequence:
        if is_unbounded(item):
            found.append(edge_of(parts_of(item)[0], last=last)[0])
        elif str(item[0]) not in ("ATOMIC_GROUP", "POSSESSIVE_REPEAT"):
            found += [each for part in parts_of(item) for each in repeats_at(part, last=last)]
        is_anchor = str(item[0]) == "AT" and "BEGINNING" in str(item[1])  # what is anchored begins once
        if is_anchor or not edge_of([item])[1]:
            break
    return found


def faults_of(sequence: Sequence[Parsed]) -> Iterator[str]:
    """Yield what in this expression shares a text between two repeats."""
    for at, item in enumerate(sequence):
        pairs = [(repeats_at(sequence[:at], last=True), repeats_at([item]))]
        for part in parts_of(item):
            yield from faults_of(part)
            if is_unbounded(item):
                pairs.append((repeats_at(part, last=True), repeats_at(part)))
        for ends, begins in pairs:
            shared = [end & begin for end in ends for begin in begins if end & begin]
            if shared:
                yield f"two repeats that both match {min(shared[0])!r} and nothing that must stand between them"


def searched_names() -> set[tuple[str, str]]:
    """Return (module, name) of the expressions that are looked for anywhere in a text."""
    return {
        (path.removeprefix("spyweb/").removesuffix(".py").replace("/", "."), node.value.id)
        for path, tree in sources()
        for node in nodes(tree)
        if isinstance(node, ast.Attribute) and node.attr in SEARCHES and isinstance(node.value, ast.Name)
    }


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
        if tuple(name.rsplit(".", 1)) in searched and repeats_at(parse(pattern))
    }
    assert {name: text for name, text in faults.items() if name not in HARMLESS} == {}


def test_no_expression_is_put_together_from_what_others_chose_but_those_listed() -> None:
    found = {
        module.__name__.removeprefix("spyweb.")
        for module, tree in modules()
        for written in asked_in_functions(module, tree)
        if written is None
    }
    assert sorted(found) == sorted(PUT_TOGETHER)


def caches() -> Iterator[str]:
    for module, _ in modules():
        for name, value in vars(module).items():
            if isinstance(value, _lru_cache_wrapper) and value.__module__ == module.__name__:
                yield f"{module.__name__.removeprefix('spyweb.')}.{name}"


def test_what_every_cache_is_asked_with_is_bounded() -> None:
    assert sorted(caches()) == sorted(CACHES)
