"""Find names that a script uses and nothing defines: misspelt functions, or Lua's own that scripts don't have.

A guess from the text, for a warning: nothing is run, and every doubt is in favour of the script.  A name counts as
defined where anything of that name is: a global, a variable of any block, a key of a table; a parameter or the variable
of a loop where it is in scope.  A name that the script asks for (`if name then`) may be absent.  Of a file that reaches
its globals by computed names nothing is said.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from difflib import get_close_matches

from spyweb.limits import PROJECT_FILE
from spyweb.specs.linting.lua_file import LuaFile
from spyweb.specs.linting.names import ABSENT, ABSENT_FAMILIES, GLOBALS, INSTEAD, MEMBERS

ReadModule = Callable[[bytes], bytes | None]  # the source of a module by its name

FEW = 20  # findings of one file: more say nothing new
LONGEST = 80  # characters that are shown or compared of a name
CLOSE = 0.8  # how similar a name must be to be suggested


def find_undefined(
    file: LuaFile, others: Sequence[LuaFile] = (), *, read: ReadModule, known: frozenset[bytes] = frozenset()
) -> list[tuple[int, str]]:
    """Return where a file uses a name that neither it nor what is loaded with it defines, with the reason.

    The others are loaded into the same VM; `read` gives the source of a required module.
    """
    first: dict[bytes, int] = {}
    for use in file.uses:
        first.setdefault(use.name, use.offset)
    names = first.keys() - known - {use.name for use in file.uses if use.is_test}
    for loaded in _loaded([file, *others], read) if names else ():
        if loaded is None:
            return []
        names = {name for name in names if loaded.defined.isdisjoint((name, name.partition(b".")[0]))}
    told = [name for name in first if name in names][:FEW]
    return [(file.line(first[name]), _reason(name.decode(), known)) for name in told]


def find_absent_modules(file: LuaFile, *, read: ReadModule) -> list[tuple[int, str]]:
    """Return where a file first requires each module of sloth-runner that is not there."""
    first: dict[str, int] = {}
    for name, offset in file.required:
        if name.decode("latin-1") in ABSENT and read(name) is None:
            first.setdefault(name.decode(), offset)
    return [(file.line(offset), _absence(name)) for name, offset in first.items()]


def _absence(name: str) -> str:
    use = ABSENT[name]
    return f"sloth-runner's {name} is not part of this version" + (f": {use}" if use else "")


def _loaded(files: Sequence[LuaFile], read: ReadModule) -> Iterator[LuaFile | None]:
    """Yield everything that defines names for these files; None where that can't be told."""
    waiting, seen = deque(files), set[bytes]()
    while waiting:
        file = waiting.popleft()
        yield None if file.is_computed else file
        for name, _ in file.required:
            if name not in seen and len(seen) < FEW:
                seen.add(name)
                source = read(name) or b""
                if len(source) > PROJECT_FILE:
                    yield None
                waiting.append(LuaFile(source))


def _reason(name: str, known: frozenset[bytes]) -> str:
    table, dot, member = name.rpartition(".")
    if name in ABSENT:
        return f"nobody defines {name}; {_absence(name)}"
    if (table or name).encode() in ABSENT_FAMILIES:
        return f"{name} is not part of this version"
    if instead := INSTEAD.get(name) or INSTEAD.get(table):
        return f"scripts have no {name}: {instead}"
    there: Iterable[bytes] = MEMBERS.get(table.encode(), ()) if dot else GLOBALS | known
    close = nearest(member, [each.decode() for each in there])
    guess = f'; did you mean "{table}{dot}{close}"?' if close else ""
    return f"nobody defines {name[:LONGEST]}{guess}"


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the known name that a misspelt one is nearest to, or nothing."""
    return next(iter(get_close_matches(name[:LONGEST], list(known), n=1, cutoff=CLOSE)), "")
