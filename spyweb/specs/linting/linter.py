"""Warn of doubtful code in a job's Lua files, with file and line: spyweb would ignore it in silence.

Guesses from the text: nothing is run, nothing is refused, and where one can't be sure nothing is said.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from spyweb.errors import OpError, Problem
from spyweb.limits import PROJECT_FILE
from spyweb.lua.hooks import ALERT_HOOKS, HOOK_NAMES
from spyweb.ops.sources import Sources, candidates_of
from spyweb.settings.reading import Names
from spyweb.specs.block import OPENING, Block, find_misplaced_block, find_nearly_a_mark
from spyweb.specs.linting.lua_file import LuaFile
from spyweb.specs.linting.names import ABSENT, ABSENT_FAMILIES, GLOBALS, INSTEAD, MEMBERS, SERVER

ReadModule = Callable[[bytes], bytes | None]  # the source of a module by its name
File = tuple[str, bytes]  # path and source
Doubts = Callable[[ReadModule], Iterable[Problem]]

FEW = 20  # findings of one file: more say nothing new
LONGEST = 80  # characters that are shown or compared of a name
CLOSE = 0.8  # how similar a name must be to be suggested
CALLED = ("run", "on_state", "on_success", "on_error", "on_finally", "on_down", "on_up")  # globals that spyweb calls
TASK_TABLES = {b"ModernDSLs", b"TaskDefinitions"}  # globals that tasks are read from
_SHOWN = 3  # names
_NOTHING = "a run of this file does nothing: it"
_MOST_FUNCTIONS = 1_000  # of a file that are checked
OF_MONITORS = (*HOOK_NAMES, *ALERT_HOOKS)
_MISPLACED = "this settings block is not at the top of the file and has no effect"
_NO_BLOCK = "a settings block has no effect here: a monitor's settings are in config.toml"


def find_own_call(file: LuaFile) -> int | None:
    """Return the line on which the chunk calls its own `run`, which would then run twice."""
    run = file.outside.get(b"run")
    return None if run is None or run.is_local or file.run_call is None else file.line(file.run_call)


def find_run_beside_tasks(file: LuaFile) -> int | None:
    """Return the line that defines `run` in a file that declares tasks: they would never run."""
    run = file.outside.get(b"run")
    declares = ({b"task", b"workflow"} & file.taken) - file.defined or TASK_TABLES & file.defined
    return None if run is None or run.is_local or not declares else file.line(run.offset)


def find_idle(file: LuaFile) -> tuple[int, str]:
    """Return why a run of the script would do nothing, and its line: 0 where it does something or that is uncertain."""
    ours = (found for name, found in file.outside.items() if name.decode() in CALLED or name in TASK_TABLES)
    is_called = any(not found.is_local for found in ours)
    if is_called or file.mentions[b"_G"] or file.mentions[b"_ENV"]:
        return 0, ""
    if file.returns:
        value, offset = file.returns
        is_module = value != b"?" and b"function" in file.makes and file.called_outside <= {b"require"}
        return file.line(offset) * is_module, f"{_NOTHING} returns a table of functions, which are never called"
    if file.called_outside or not (file.outside and file.makes):
        return 0, ""
    names = [name.decode()[:40] for name in list(file.outside)[:_SHOWN]]
    listed = ", ".join(names) + (", …" if len(file.outside) > _SHOWN else "")
    wanted = "the global function run" + (", and this one is local" if b"run" in file.outside else "(ctx)")
    first = next(iter(file.outside.values()))
    return file.line(first.offset), f"{_NOTHING} only defines {listed}; spyweb calls {wanted}"


def find_undefined(
    file: LuaFile, others: Sequence[LuaFile] = (), *, read: ReadModule, known: frozenset[bytes] = frozenset()
) -> list[tuple[int, str]]:
    """Return where a file uses names that neither it, nor the others of its VM, nor a required module defines; why."""
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
    """Yield everything that defines names for these files; None where that can't be known."""
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
        return f"undefined name {name}; {_absence(name)}"
    if (table or name).encode() in ABSENT_FAMILIES:
        return f"{name} is not part of this version"
    if instead := INSTEAD.get(name) or INSTEAD.get(table):
        return f"scripts have no {name}: {instead}"
    there: Iterable[bytes] = MEMBERS.get(table.encode(), ()) if dot else GLOBALS | known
    close = Names(sorted(each.decode() for each in there)).nearest(member, CLOSE)
    guess = f'; did you mean "{table}{dot}{close}"?' if close else ""
    return f"undefined name {name[:LONGEST]}{guess}"


class Linter:
    """Keeps what was found in each job's files for the next scan; a deferred one reads new files in `finish`."""

    def __init__(self, *, deferred: bool = False) -> None:
        self._deferred = deferred
        self._put_off: dict[str, tuple[bytes, Doubts, ReadModule]] = {}  # by the job's file
        self._last: dict[str, tuple[bytes, tuple[Problem, ...]]] = {}
        self._now: dict[str, tuple[bytes, tuple[Problem, ...]]] = {}

    def begin(self) -> None:
        """Begin a scan: forget the files that the scan before did not ask for."""
        self._last, self._now, self._put_off = self._now, {}, {}

    def look(self, place: str, digest: bytes, doubts: Doubts, read: ReadModule) -> tuple[Problem, ...]:
        """Return the doubts about the files of this digest.  Doubts that depend on modules are searched each time."""
        kept = self._last.get(place)
        if kept and kept[0] == digest:
            self._now[place] = kept
            return kept[1]
        if self._deferred:
            self._put_off[place] = (digest, doubts, read)
            return ()
        return self._look(place, digest, doubts, read)

    def finish(self) -> Mapping[str, tuple[Problem, ...]]:
        """Return the doubts that were put off in this scan, by the job's file.  Slow: call it in a thread."""
        asked, self._put_off = self._put_off, {}
        return {place: self._look(place, *each) for place, each in asked.items()}

    def _look(self, place: str, digest: bytes, doubts: Doubts, read: ReadModule) -> tuple[Problem, ...]:
        modules: list[bytes] = []

        def noted(name: bytes) -> bytes | None:
            modules.append(name)
            return read(name)

        found = tuple(doubts(noted))
        if not modules:
            self._now[place] = (digest, found)
        return found


def doubts_of_script(file: File, block: Block, read: ReadModule) -> Iterator[Problem]:
    path, source = file
    lua = LuaFile(source)
    found = (
        (find_misplaced_block(source, block.end), _MISPLACED),
        (find_nearly_a_mark(source), f'this begins no block of settings; expected "{OPENING}"'),
        (find_own_call(lua), "the file defines run and calls it; spyweb calls it too"),
        (find_run_beside_tasks(lua), "the file declares tasks and defines run: spyweb calls run, and no task runs"),
        find_idle(lua),
    )
    yield from (_warning(path, line, reason) for line, reason in found if line)
    yield from _doubts_of_names({path: lua}, read)
    for line, name in _unused_functions(lua, [lua], CALLED):
        if name in HOOK_NAMES:
            yield _warning(path, line, f"{name} is a hook of monitors: of a script spyweb calls {', '.join(CALLED)}")
        elif close := _nearly(name, CALLED):
            yield _warning(path, line, f'{name} is never called; did you mean "{close}"?')


def doubts_of_hooks(files: Sequence[File], read: ReadModule) -> Iterator[Problem]:
    """Yield the doubts about a monitor's Lua files, which share a VM."""
    together = {path: LuaFile(source) for path, source in files}
    for path, source in files:
        if line := find_misplaced_block(source):
            yield _warning(path, line, _NO_BLOCK)
    yield from _doubts_of_names(together, read)
    for path, lua in together.items():
        for line, name in _unused_functions(lua, together.values(), OF_MONITORS):
            if close := _nearly(name, OF_MONITORS):
                yield _warning(path, line, f'no hook is named {name}; did you mean "{close}"?')


def doubts_of_server(files: Sequence[File], read: ReadModule) -> Iterator[Problem]:
    return _doubts_of_names({path: LuaFile(source) for path, source in files}, read, known=SERVER)


def read_module(modules: Sources, folder: str, name: bytes) -> bytes | None:
    """Return the source of a required module, or None where there is none that may be loaded."""
    try:
        found = (modules.read(str(path)) for path in candidates_of(folder, name))
        return next((source for source in found if source is not None), None)
    except OpError:
        return None


def _warning(path: str, line: int, reason: str) -> Problem:
    return Problem(path, line, None, reason, is_warning=True)


def _doubts_of_names(
    files: Mapping[str, LuaFile], read: ReadModule, known: frozenset[bytes] = frozenset()
) -> Iterator[Problem]:
    for path, file in files.items():
        others = [other for other in files.values() if other is not file]
        for line, reason in (
            *find_absent_modules(file, read=read),
            *find_undefined(file, others, known=known, read=read),
        ):
            yield _warning(path, line, reason)


def _unused_functions(file: LuaFile, files: Collection[LuaFile], called: Collection[str]) -> Iterator[tuple[int, str]]:
    """Yield the global functions that spyweb does not call, and that none of these files mentions elsewhere."""
    for name, offset in file.functions[:_MOST_FUNCTIONS]:
        if name.decode() not in called and sum(each.mentions[name] for each in files) == 1:
            yield file.line(offset), name.decode()


def _nearly(name: str, known: Collection[str]) -> str:
    """Return the known name that another one is nearest to, and not."""
    close = Names(known).nearest(name, CLOSE)
    return "" if close == name else close or ""
