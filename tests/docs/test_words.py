"""Pages, messages, help, log lines, docstrings and comments use the field's plain words, not a dialect."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tests.fakes.repository import ROOT, tracked_files

# What to say instead, the words that are not used, and an example of them.  A blank matches any white space.
PLAIN = [
    ("acknowledge", r"(tak(e|es|en|ing)|took) care|care[sd]? for", "nobody takes care yet"),
    ("delivered, last delivery", r"ha(s|ve|d) taken (it|them)|(took|taken) its last", "phone has taken it"),
    ("notified, reported, shown", r"told|tell(s|ing)? people", "who is told of it"),
    ("notification channels", r"ways? to (people|a person)", "the ways to people"),
    ("notification channel", r"alert channels?", "an alert channel fails"),
    ("healthy, recovered, up", r"(is|are|was|were|be|been|all) well(?! \w+ed)|well again", "prices is well again"),
    ("failed, needs attention", r"went wrong|(go|goes|gone|going) wrong|needs? somebody", "what went wrong"),
    ("access, from outside", r"may come in|comes? in", "who may come in"),
    ("fix", r"mend(s|ed|ing)?", "Nobody mends it"),
    ("p99 120 ms", r"99 of 100|of (a )?hundred at most", "99 of 100 at most 120 ms"),
    ("defaults", r"(as they are|as it is) built in", "settings as they are built in"),
    ("activity, live", r"what happens(?=[.;|<]|\s*\Z)|while somebody looks", "It shows what happens."),
    ("status, history", r"how it does|how (it|they) stands?|(came|comes?) about", "how it came about"),
    ("local time, manually", r"clock on the wall|by hand", "started by hand"),
    ("name the noun", r"whoever|those of which|no run's end|has it noted|so does one", "Whoever asks"),
    ("check, poll", r"looked at|a look|looks(?! (like|up|as if))", "a file is looked at"),
    ("Test notification", r"tries out|it works(?=[.!<|\"'])", "tries out the channel: It works."),
    ("lower priority", r"giv(e|es|ing) way", "giving way to the daemon"),
    ("own user, separate process", r"(user|process|thread) of its own", "a user of its own"),
    ("removed, ended, lost", r"(has|have|had|is|are|was|were|be) gone|(is|are|was) no more", "the job is gone"),
    ("compute", r"reckon\w*", "reckoned from the runs"),
    ("needed, waiting", r"ow(e|es|ed|ing)", "a run that is owed"),
    ("clean up, at random", r"dust(s|ed|ing)?|dic(e|ed|ing)", "it dusts the folder"),
    ("internal error (see the log)", r"a bug in spyweb", "a bug in spyweb: see its log"),
]


def rule(words: str) -> re.Pattern[str]:
    return re.compile(rf"\b(?:{words})(?!\w)".replace(" ", r"\s+"), re.IGNORECASE)


RULES = [(say, rule(words)) for say, words, _ in PLAIN]
ANY = rule("|".join(words for _, words, _ in PLAIN))

READ = {".py", ".md", ".html", ".txt", ".xml", ".lua", ".sql", ".toml", ".js", ".css", ".service", ".yaml", ".yml"}
ROOMS = (
    *("spyweb/", "docs/", "jobs/", "deploy/", "benchmarks/"),
    *("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "config.example.toml"),
)
KEPT = (  # events of the log, which tools read
    "an alert channel can't be used",
    "a template of an alert channel fails",
    "the process that sends to alert channels sent an invalid answer",
    "internal error while checking alert channels",
)
_CODE = re.compile(r"`[^`\n]+`|\{\{.*?\}\}|\{%.*?%\}")  # names of code, and what a template computes
_FIELD = re.compile(r"\{[^{}]*\}")  # of an f-string
_SQL = re.compile(r"\b(SELECT|INSERT|UPDATE|DELETE|JOIN|CREATE)\b")
_NAME = re.compile(r"\W*\w*\W*")  # one word: a key or a column, not a sentence
_COMMENT = {".lua": r"--.*|\"[^\"\n]*\"|'[^'\n]*'", ".sql": r"--.*"}  # what is read of a file that is mostly code


def read_by_people(path: str, text: str) -> Iterator[tuple[int, str]]:
    """Yield the line of each text in a file that a person may read, and the text; nothing of it is code."""
    suffix = Path(path).suffix
    for event in KEPT:
        text = text.replace(event, "")
    if suffix == ".py":
        yield from _of_python(text)
    elif suffix in _COMMENT:
        kept = (" ".join(re.findall(_COMMENT[suffix], line)).replace("--", "") for line in text.split("\n"))
        yield 1, "\n".join(kept)
    else:
        yield 1, text


def _of_python(text: str) -> Iterator[tuple[int, str]]:
    comment, at, last = "", 0, -1
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        line = token.start[0]
        if token.type == tokenize.COMMENT:
            if line != last + 1:
                yield at, comment
                comment, at = "", line
            comment, last = f"{comment}{token.string.lstrip('# ')}\n", line
        elif token.type == tokenize.STRING and not (_SQL.search(token.string) or _NAME.fullmatch(token.string)):
            yield line, _FIELD.sub("", token.string) if "f" in token.string[:2].lower() else token.string
    yield at, comment


def found_in(path: str, text: str) -> list[str]:
    """Return each place of these words in a file, as file:line, the words, and what to say instead."""
    if not ANY.search(text.lower()):  # one pass over most files: the rules are slower
        return []
    return [
        f"{path}:{line + shown.count(chr(10), 0, match.start())}: {' '.join(match.group().split())!r}: say {say}"
        for line, read in read_by_people(path, text)
        for shown in [_CODE.sub("¤", read)]
        for say, rule in RULES
        for match in rule.finditer(shown)
    ]


def files(rooms: Iterable[str]) -> Iterator[tuple[str, str]]:
    for file in tracked_files():
        name = file.relative_to(ROOT).as_posix()
        if file.suffix in READ and name.startswith(tuple(rooms)):
            yield name, file.read_text(encoding="utf-8")


def test_the_words_that_people_read_are_plain() -> None:
    assert [place for name, text in files(ROOMS) for place in found_in(name, text)] == []


@pytest.mark.parametrize(("say", "example"), [(say, example) for say, _, example in PLAIN])
def test_each_of_these_words_is_found(say: str, example: str) -> None:
    assert [place.rsplit("say ", 1)[1] for place in found_in("page.md", f"So:\n{example}\n")].count(say)


@pytest.mark.parametrize(
    ("name", "text", "lines"),
    [
        ("a.py", '"""Do it.\n\nThe file is\ngone.\n"""\n', [3]),
        ("a.py", "x = 1  # the thread\n# and more: it is\n# gone\nis_gone = told = owed\n", [2]),
        ("a.py", 'say(f"{told} of {owed}: the job is gone")\nask("SELECT 1 FROM told")\nask("told")\n', [1]),
        ("a.lua", "local told = owed  -- it is gone\nfail('whoever it was')\nreturn told\n", [1, 2]),
        ("a.sql", "CREATE TABLE told (x);  -- nobody was told\n", [1]),
        ("a.html", "<p>{{ told }} {% if owed %}is\ngone{% endif %}</p>\n", [1]),
        ("a.md", "`told` and so on\n\nthat it was\ntold\n", [4]),
    ],
)
def test_texts_are_read_and_code_is_not(name: str, text: str, lines: list[int]) -> None:
    assert sorted(int(place.split(":")[1]) for place in found_in(name, text)) == lines
