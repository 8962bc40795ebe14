"""Find code without effect: a call of the job's own `run`, a run that does nothing.

Guesses from the file's words, for warnings: nothing is run, and where one can't be sure there is no answer.
"""

from __future__ import annotations

from spyweb.specs.linting.lua_file import LuaFile

CALLED = ("run", "on_state", "on_success", "on_error", "on_finally", "on_down", "on_up")  # globals that spyweb calls
TASK_TABLES = {b"ModernDSLs", b"TaskDefinitions"}  # globals that tasks are read from
_BUILDERS = {b"task", b"workflow"}
_SHOWN = 3  # names
_SHOWN_LENGTH = 40  # characters of each
_NOTHING = "a run of this file does nothing: it"


def find_own_call(file: LuaFile) -> int | None:
    """Return the line on which the chunk calls its own `run`, which would then run twice."""
    run = file.outside.get(b"run")
    return None if run is None or run.is_local or file.run_call is None else file.line(file.run_call)


def find_run_beside_tasks(file: LuaFile) -> int | None:
    """Return the line that defines `run` in a file that declares tasks: they would never run."""
    run = file.outside.get(b"run")
    declares = (_BUILDERS & file.taken) - file.defined or TASK_TABLES & file.defined
    return None if run is None or run.is_local or not declares else file.line(run.offset)


def find_idle(file: LuaFile) -> tuple[int, str]:
    """Return why a run of the script would do nothing, and its line: 0 where it does something or that is uncertain."""
    is_called = any(_is_ours(name) and not found.is_local for name, found in file.outside.items())
    if is_called or file.mentions[b"_G"] or file.mentions[b"_ENV"]:
        return 0, ""
    if file.returns:
        value, offset = file.returns
        is_module = value != b"?" and b"function" in file.makes and file.called_outside <= {b"require"}
        return file.line(offset) * is_module, f"{_NOTHING} returns a table of functions, which nobody calls"
    if file.called_outside or not (file.outside and file.makes):
        return 0, ""
    names = [name.decode()[:_SHOWN_LENGTH] for name in list(file.outside)[:_SHOWN]]
    listed = ", ".join(names) + (", …" if len(file.outside) > _SHOWN else "")
    wanted = "the global function run" + (", and this one is local" if b"run" in file.outside else "(ctx)")
    first = next(iter(file.outside.values()))
    return file.line(first.offset), f"{_NOTHING} only defines {listed}; spyweb calls {wanted}"


def _is_ours(name: bytes) -> bool:
    """Return whether spyweb calls a global of this name, or reads tasks from it."""
    return name.decode() in CALLED or name in TASK_TABLES
