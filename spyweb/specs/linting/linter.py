"""Warn of what is doubtful in a job's Lua files, with file and line: spyweb would ignore it in silence.

Guesses from the text: nothing is run, nothing is refused, and where one can't be sure nothing is said.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from spyweb.errors import OpError, Problem
from spyweb.lua.hooks import ALERT_HOOKS, HOOK_NAMES
from spyweb.ops.sources import Sources, candidates_of
from spyweb.specs.block import OPENING, Block, find_misplaced_block, find_nearly_a_mark
from spyweb.specs.linting.checks import (
    CALLED,
    ReadModule,
    find_absent_modules,
    find_idle,
    find_own_call,
    find_run_beside_tasks,
    find_task_faults,
    find_undefined,
    nearest,
)
from spyweb.specs.linting.lua_file import LuaFile
from spyweb.specs.linting.names import SERVER

File = tuple[str, bytes]  # path and source
Doubts = Callable[[ReadModule], Iterable[Problem]]

_MOST_FUNCTIONS = 1_000  # of a file that are looked at
OF_MONITORS = (*HOOK_NAMES, *ALERT_HOOKS)
_MISPLACED = "this settings block is not at the top of the file and has no effect"
_NO_BLOCK = "a settings block has no effect here: a monitor's settings are in config.toml"


class Linter:
    """Keeps what was found in each job's files from one scan to the next: few files change between them.

    One that is deferred keeps no scan waiting: what it has not looked at yet it looks at in `finish`.
    """

    def __init__(self, *, deferred: bool = False) -> None:
        self._deferred = deferred
        self._put_off: dict[str, tuple[bytes, Doubts, ReadModule]] = {}  # by the job's file
        self._last: dict[str, tuple[bytes, tuple[Problem, ...]]] = {}
        self._now: dict[str, tuple[bytes, tuple[Problem, ...]]] = {}

    def begin(self) -> None:
        """Begin a scan: forget the files that the scan before did not ask for."""
        self._last, self._now, self._put_off = self._now, {}, {}

    def look(self, place: str, digest: bytes, doubts: Doubts, read: ReadModule) -> tuple[Problem, ...]:
        """Return the doubts about the files of this digest.  Those that depend on modules are looked for each time."""
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
        *find_task_faults(lua),
        find_idle(lua),
    )
    yield from (_warning(path, line, reason) for line, reason in found if line)
    yield from _doubts_of_names({path: lua}, read)
    for line, name in _unused_functions(lua, [lua], CALLED):
        if name in HOOK_NAMES:
            yield _warning(path, line, f"{name} is a hook of monitors: of a script spyweb calls {', '.join(CALLED)}")
        elif close := _nearly(name, CALLED):
            yield _warning(path, line, f'nobody calls {name}; did you mean "{close}"?')


def doubts_of_hooks(files: Sequence[File], read: ReadModule) -> Iterator[Problem]:
    """Yield what is doubtful about a monitor's Lua files, which share a VM."""
    together = {path: LuaFile(source) for path, source in files}
    for path, source in files:
        if line := find_misplaced_block(source):
            yield _warning(path, line, _NO_BLOCK)
    yield from _doubts_of_names(together, read)
    for path, lua in together.items():
        for line, name in _unused_functions(lua, together.values(), OF_MONITORS):
            if close := _nearly(name, OF_MONITORS):
                yield _warning(path, line, f'no hook is called {name}; did you mean "{close}"?')


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
    close = nearest(name.lower(), known)
    return "" if close == name else close
