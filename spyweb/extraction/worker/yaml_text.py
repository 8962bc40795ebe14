"""Parse YAML 1.2, with its core types, into plain values.

Levels are counted before the text is composed, as libyaml's binding ends the process at 50,000 brackets.  A few lines
of aliases are a value without end: what they stand for is counted each time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, NoReturn

import yaml
from yaml.events import AliasEvent, CollectionEndEvent, CollectionStartEvent, DocumentStartEvent, Event, NodeEvent

from spyweb.extraction.worker.document import ExtractionProblem

LEVELS = 100
NODES = 100_000
TEXT = 4 << 20  # bytes of all texts, those that aliases repeat included

Scalar = bytes | int | float | bool | None
Value = Scalar | list["Value"] | dict[bytes, "Value"]

_CORE = "tag:yaml.org,2002:"
_INTEGER_LIMIT = 1 << 63
_LONGEST_INTEGER = 20  # digits and a sign: int() is slow for long texts, float() is not

_INTEGER = re.compile(r"(?:[-+]?[0-9]+|0o[0-7]{1,21}|0x[0-9a-fA-F]{1,16})\Z")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z")
_NO_NUMBER = re.compile(r"(?:[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))\Z")
_BOOLEAN = re.compile(r"(?:true|True|TRUE|false|False|FALSE)\Z")
_ANY = re.compile("")
_NULL = re.compile(r"(?:~|null|Null|NULL|)\Z")

Reader = tuple[re.Pattern[str], Callable[[str], Scalar]]


class _CoreLoader(yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader):  # type: ignore[misc]  # untyped
    """Takes texts without quotes for what YAML's core schema takes them for."""

    yaml_implicit_resolvers: ClassVar[dict[str, object]] = {}


_CoreLoader.add_implicit_resolver(f"{_CORE}null", _NULL, ["~", "n", "N", ""])
_CoreLoader.add_implicit_resolver(f"{_CORE}bool", _BOOLEAN, list("tTfF"))
_CoreLoader.add_implicit_resolver(f"{_CORE}int", _INTEGER, list("-+0123456789"))
_CoreLoader.add_implicit_resolver(f"{_CORE}float", _FLOAT, list("-+.0123456789"))
_CoreLoader.add_implicit_resolver(f"{_CORE}float", _NO_NUMBER, list("-+."))
_CoreLoader.add_implicit_resolver(f"{_CORE}merge", re.compile("<<\\Z"), ["<"])


def parse_yaml(text: bytes) -> Value:
    """Return the value of a YAML text of one document.  Raises ExtractionProblem."""
    try:
        decoded = text.decode("utf-8")
        _check_shape(decoded)
        root = yaml.compose(decoded, Loader=_CoreLoader)
    except UnicodeDecodeError as error:
        raise ExtractionProblem(f"the text is not UTF-8 (byte {error.start + 1})") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        reason = error.problem or error.context or "not YAML"
        raise ExtractionProblem(f"line {mark.line + 1}: {reason}" if mark else reason) from None
    except yaml.YAMLError as error:
        raise ExtractionProblem(" ".join(str(error).split())) from None
    return None if root is None else _Builder().build(root, 0)


def _check_shape(text: str) -> None:
    """Refuse a second document, an anchor that is defined twice, too many levels, and far too many nodes."""
    level = documents = nodes = 0
    anchors = set[str]()
    for event in yaml.parse(text, Loader=_CoreLoader):
        documents += isinstance(event, DocumentStartEvent)
        nodes += isinstance(event, NodeEvent)
        level += isinstance(event, CollectionStartEvent) - isinstance(event, CollectionEndEvent)
        if documents > 1:
            _refuse(event, "one document expected, but another begins here")
        if level > LEVELS:
            _refuse(event, f"more than {LEVELS} levels")
        if nodes > 2 * NODES:  # keys are no nodes of a value
            _refuse(event, f"more than {NODES} nodes")
        anchor = None if isinstance(event, AliasEvent) else getattr(event, "anchor", None)
        if anchor in anchors:
            _refuse(event, f"the anchor {anchor[:80]} is defined twice")
        if anchor is not None:
            anchors.add(anchor)


class _Builder:
    """Builds values of nodes; what an alias stands for is built, and counted, again."""

    def __init__(self) -> None:
        self._under_way: set[int] = set()  # ids of nodes whose end has not come yet
        self._nodes = 0
        self._text = 0

    def build(self, node: yaml.Node, level: int) -> Value:
        """Return the value of a node that has so many lists and mappings around it."""
        self._count(node, nodes=1)
        if isinstance(node, yaml.ScalarNode):
            self._count(node, text=len(node.value))  # a number's text is read for each alias, too
            return _scalar(node)
        if id(node) in self._under_way:
            _refuse(node, "the alias is inside its own anchor")
        if level == LEVELS:
            _refuse(node, f"more than {LEVELS} levels")
        is_list = isinstance(node, yaml.SequenceNode)
        if node.tag != _CORE + ("seq" if is_list else "map"):
            _refuse_tag(node)
        self._under_way.add(id(node))
        made = [self.build(each, level + 1) for each in node.value] if is_list else self._mapping(node, level + 1)
        self._under_way.discard(id(node))
        return made

    def _mapping(self, node: yaml.MappingNode, level: int) -> dict[bytes, Value]:
        made: dict[bytes, Value] = {}
        merged: list[Value] = []
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                _refuse(key_node, "a key that is not a text")
            key = key_node.value.encode()
            self._count(key_node, text=len(key))
            value = self.build(value_node, level)
            if key_node.tag == _CORE + "merge":
                found = value if isinstance(value, list) else [value]
                if not all(isinstance(each, dict) for each in found):
                    _refuse(value_node, "<< names something that is not a mapping")
                merged += found
            elif key in made:
                _refuse(key_node, f"the key {key[:80].decode('utf-8', 'replace')} is defined twice")
            else:
                made[key] = value
        first: dict[bytes, Value] = {}
        for each in reversed(merged):  # what it adds was counted as a part of `<<`
            assert isinstance(each, dict)
            first.update(each)
        return first | made

    def _count(self, node: yaml.Node, *, nodes: int = 0, text: int = 0) -> None:
        self._nodes += nodes
        self._text += text
        if self._nodes > NODES:
            _refuse(node, f"more than {NODES} nodes, with aliases expanded")
        if self._text > TEXT:
            _refuse(node, f"more than {TEXT >> 20} MB of text, with aliases expanded")


def _integer(text: str) -> int | float:
    """Return an integer, or the nearest float of one that has no place in 64 bits."""
    if len(text) > _LONGEST_INTEGER and text[1] not in "ox":
        return float(text)
    number = int(text, 0) if text[1:2] in ("o", "x") else int(text)
    return number if -_INTEGER_LIMIT <= number < _INTEGER_LIMIT else float(number)


# Tag → what it is called, and what the texts are that may have it, with their values
_READERS: Mapping[str, tuple[str, Sequence[Reader]]] = {
    "str": ("a text", [(_ANY, str.encode)]),
    "merge": ("a text", [(_ANY, str.encode)]),
    "int": ("an integer", [(_INTEGER, _integer)]),
    "float": (
        "a number",
        [(_INTEGER, _integer), (_FLOAT, float), (_NO_NUMBER, lambda text: float(text.replace(".", "")))],
    ),
    "bool": ("a boolean", [(_BOOLEAN, lambda text: text.lower() == "true")]),
    "null": ("null", [(_NULL, lambda _: None)]),
}


def _scalar(node: yaml.ScalarNode) -> Scalar:
    """Return the value of a text, by its tag: its own, or the one that was found for it."""
    kind = node.tag.removeprefix(_CORE)
    if kind not in _READERS:
        _refuse_tag(node)
    expected, readers = _READERS[kind]
    read = next((read for pattern, read in readers if pattern.match(node.value)), None)
    if read is None:
        _refuse(node, f"{node.value[:80]} is not {expected}")
    return read(node.value)


def _refuse_tag(node: yaml.Node) -> NoReturn:
    _refuse(node, f"the tag {node.tag.replace(_CORE, '!!')[:80]} is not one of YAML's core types")


def _refuse(at: yaml.Node | Event, reason: str) -> NoReturn:
    raise ExtractionProblem(f"line {at.start_mark.line + 1}: {reason}")
