"""Parse YAML 1.2, with its core types, into plain values.

From the parser's events and without recursion: composing a text of 50,000 brackets ends the process, and a few lines of
aliases are a value without end, so levels and nodes are counted as they come, aliases as what they stand for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import NoReturn

import yaml
from msgspec import Struct, field
from yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

from spyweb.extraction.worker.document import ExtractionProblem

LEVELS = 100
NODES = 100_000
TEXT = 4 << 20  # bytes of all texts, those that aliases repeat included

Scalar = bytes | int | float | bool | None
Node = Scalar | list["Node"] | dict[bytes, "Node"]

_LOADER = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader
_CORE = "tag:yaml.org,2002:"
_MERGE = b"<<"
_INTEGER_LIMIT = 1 << 63
_LONGEST_INTEGER = 20  # digits and a sign: int() is slow for long texts, float() is not

_INTEGER = re.compile(r"[-+]?[0-9]+")
_OCTAL = re.compile(r"0o[0-7]{1,21}")
_HEXADECIMAL = re.compile(r"0x[0-9a-fA-F]{1,16}")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_WORDS: Mapping[str, Scalar] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), float("inf")),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), float("-inf")),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
}


class _Measure(Struct):
    """The size of a value with all that is in it."""

    nodes: int = 0
    text: int = 0
    height: int = 0  # levels of lists and mappings


class _Open(Struct):
    """A list or mapping whose end has not come yet."""

    value: list[Node] | dict[bytes, Node]
    anchor: str | None
    before: _Measure  # of all that came before it
    height: int = 1
    key: bytes | None = None  # of the value that comes next in a mapping
    merged: list[Node] = field(default_factory=list)  # what `<<` names


def parse_yaml(text: bytes) -> Node:
    """Return the value of a YAML text of one document.  Raises ExtractionProblem."""
    try:
        return _Builder().build(text.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise ExtractionProblem(f"the text is not UTF-8 (byte {error.start + 1})") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        reason = error.problem or error.context or "not YAML"
        raise ExtractionProblem(f"line {mark.line + 1}: {reason}" if mark else reason) from None
    except yaml.YAMLError as error:
        raise ExtractionProblem(" ".join(str(error).split())) from None


class _Builder:
    """Builds the value from events, one after the other."""

    def __init__(self) -> None:
        self._open: list[_Open] = []
        self._anchors: dict[str, tuple[Node, _Measure] | None] = {}  # None: it has not ended yet
        self._total = _Measure()
        self._root: Node = None

    def build(self, text: str) -> Node:
        documents = 0
        for event in _events(text):
            match event:
                case DocumentStartEvent():
                    documents += 1
                    if documents > 1:
                        _refuse(event, "one document expected, and here begins another")
                case MappingStartEvent() | SequenceStartEvent():
                    self._begin(event)
                case MappingEndEvent() | SequenceEndEvent():
                    self._end(event)
                case ScalarEvent():
                    self._add_scalar(event)
                case AliasEvent():
                    self._add_alias(event)
        return self._root

    def _begin(self, event: MappingStartEvent | SequenceStartEvent) -> None:
        value: list[Node] | dict[bytes, Node] = [] if isinstance(event, SequenceStartEvent) else {}
        expected = f"{_CORE}seq" if isinstance(value, list) else f"{_CORE}map"
        if event.tag not in (None, "!", expected):
            _refuse_tag(event, event.tag)
        self._refuse_as_key(event)
        before = _Measure(nodes=self._total.nodes, text=self._total.text)
        self._count(event, nodes=1)
        self._open.append(_Open(value, event.anchor, before))
        if len(self._open) > LEVELS:
            _refuse(event, f"more than {LEVELS} levels")
        if event.anchor is not None:
            self._anchors[event.anchor] = None

    def _end(self, event: Event) -> None:
        ended = self._open.pop()
        if isinstance(ended.value, dict):
            for given in ended.merged:
                self._merge(event, ended.value, given)
        measure = _Measure(
            nodes=self._total.nodes - ended.before.nodes,
            text=self._total.text - ended.before.text,
            height=ended.height,
        )
        if ended.anchor is not None:
            self._anchors[ended.anchor] = (ended.value, measure)
        self._put(event, ended.value, measure.height)

    def _add_scalar(self, event: ScalarEvent) -> None:
        if self._is_key_next():
            self._put_key(event, event.value.encode())
            if event.anchor is not None:
                self._anchors[event.anchor] = (event.value.encode(), _Measure(1, len(event.value)))
            return
        value = _scalar(event)
        size = len(value) if isinstance(value, bytes) else 0
        self._count(event, nodes=1, text=size)
        if event.anchor is not None:
            self._anchors[event.anchor] = (value, _Measure(nodes=1, text=size))
        self._put(event, value, 0)

    def _add_alias(self, event: AliasEvent) -> None:
        if event.anchor not in self._anchors:
            _refuse(event, f"nothing has the anchor {event.anchor[:80]}")
        found = self._anchors[event.anchor]
        if found is None:
            _refuse(event, f"*{event.anchor[:80]} is inside what it stands for")
        value, measure = found
        if self._is_key_next():
            if not isinstance(value, bytes):
                _refuse(event, "a key that is not a text")
            self._put_key(event, value)
            return
        self._count(event, nodes=measure.nodes, text=measure.text)
        if len(self._open) + measure.height > LEVELS:
            _refuse(event, f"more than {LEVELS} levels")
        self._put(event, value, measure.height)

    def _is_key_next(self) -> bool:
        return bool(self._open) and isinstance(self._open[-1].value, dict) and self._open[-1].key is None

    def _refuse_as_key(self, event: Event) -> None:
        if self._is_key_next():
            _refuse(event, "a key that is not a text")

    def _put_key(self, event: Event, key: bytes) -> None:
        around = self._open[-1]
        assert isinstance(around.value, dict)
        is_merge = key == _MERGE and isinstance(event, ScalarEvent) and event.implicit[0]
        if key in around.value and not is_merge:
            _refuse(event, f"the key {key[:80].decode('utf-8', 'replace')} is there twice")
        self._count(event, text=len(key))
        around.key = key if not is_merge else _MERGE
        if not is_merge:
            around.value[key] = None  # its place

    def _put(self, event: Event, value: Node, height: int) -> None:
        if not self._open:
            self._root = value
            return
        around = self._open[-1]
        around.height = max(around.height, height + 1)
        if isinstance(around.value, list):
            around.value.append(value)
            return
        key, around.key = around.key, None
        assert key is not None
        if key in around.value:
            around.value[key] = value
        else:
            around.merged += value if isinstance(value, list) else [value]

    def _merge(self, event: Event, target: dict[bytes, Node], given: Node) -> None:
        """Add what is not there yet; what is added was counted as a part of `<<`."""
        if not isinstance(given, dict):
            _refuse(event, "<< names something that is not a mapping")
        for key, value in given.items():
            target.setdefault(key, value)

    def _count(self, event: Event, *, nodes: int = 0, text: int = 0) -> None:
        self._total.nodes += nodes
        self._total.text += text
        if self._total.nodes > NODES:
            _refuse(event, f"more than {NODES} nodes, aliases counted as what they stand for")
        if self._total.text > TEXT:
            _refuse(event, f"more than {TEXT >> 20} MB of text, aliases counted as what they stand for")


def _events(text: str) -> Iterator[Event]:
    events: Iterator[Event] = yaml.parse(text, Loader=_LOADER)
    return events


def _scalar(event: ScalarEvent) -> Scalar:
    text: str = event.value
    tag = event.tag
    if tag is None or tag == "!":
        return _plain(text) if tag is None and event.implicit[0] else text.encode()
    read = _TAGGED.get(tag)
    if read is None:
        _refuse_tag(event, tag)
    found = read(text)
    if isinstance(found, _Wrong):
        _refuse(event, f"{text[:80]} is not {found.expected}")
    return found


def _plain(text: str) -> Scalar:
    """Return the value of a text without quotes, by YAML's core schema."""
    if text in _WORDS:
        return _WORDS[text]
    number = _number(text)
    return text.encode() if number is None else number


def _number(text: str) -> int | float | None:
    if _INTEGER.fullmatch(text):
        return _fitting(int(text) if len(text) <= _LONGEST_INTEGER else float(text))
    if _OCTAL.fullmatch(text):
        return _fitting(int(text[2:], 8))
    if _HEXADECIMAL.fullmatch(text):
        return _fitting(int(text[2:], 16))
    return float(text) if _FLOAT.fullmatch(text) else None


def _fitting(number: int | float) -> int | float:
    """Return the nearest float of an integer that has no place in 64 bits."""
    return number if -_INTEGER_LIMIT <= number < _INTEGER_LIMIT else float(number)


class _Wrong(Struct, frozen=True):
    expected: str


def _read_number(text: str) -> int | float | _Wrong:
    value = _plain(text)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return _Wrong("a number")
    return value


def _read_integer(text: str) -> int | float | _Wrong:
    value = _read_number(text)
    return value if isinstance(value, int) else _Wrong("an integer")


def _read_word(kind: type, expected: str) -> Callable[[str], Scalar | _Wrong]:
    def read(text: str) -> Scalar | _Wrong:
        value = _WORDS.get(text, text)
        return value if isinstance(value, kind) and not isinstance(value, str) else _Wrong(expected)

    return read


_TAGGED: Mapping[str, Callable[[str], Scalar | _Wrong]] = {
    f"{_CORE}str": lambda text: text.encode(),
    f"{_CORE}int": _read_integer,
    f"{_CORE}float": _read_number,
    f"{_CORE}bool": _read_word(bool, "a boolean"),
    f"{_CORE}null": _read_word(type(None), "null"),
}


def _refuse_tag(event: Event, tag: str) -> NoReturn:
    _refuse(event, f"the tag {tag.replace(_CORE, '!!')[:80]} is not one of YAML's core types")


def _refuse(event: Event, reason: str) -> NoReturn:
    raise ExtractionProblem(f"line {event.start_mark.line + 1}: {reason}")
