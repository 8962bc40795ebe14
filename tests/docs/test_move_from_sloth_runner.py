"""What the page on sloth-runner says of a call is so: what is the same here is here, what is absent is not."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from spyweb.lua.wire import Ended
from spyweb.lua.worker.vm import VM, Bytecode, compile_lua_files, init_of
from spyweb.specs.linting.names import ABSENT as ABSENT_MODULES
from spyweb.specs.linting.names import ABSENT_FAMILIES, GLOBALS, MEMBERS
from tests.fakes.repository import read
from tests.fakes.vm import FakeCallbacks, run_to_end

PAGE = "docs/how-to/move-from-sloth-runner.md"
SAME, DIFFERS, ABSENT, NEXT = "the same", "differs", "absent", "next version"
INIT = init_of({"ops": [], "engine": {}, "env": {}})
_ROW = re.compile(r"^\| (?P<there>.+?) \| (?P<here>.+?) \|", re.MULTILINE)
_NAME = re.compile(r"`:?(?P<name>[a-z]\w*(?:\.\w+)?)(?:\([^`]*\))?`")  # `name`, `:name(f)`, `family.name`


def section(heading: str) -> str:
    found = re.search(rf"^## {heading}$(.*?)^## ", read(PAGE), re.MULTILINE | re.DOTALL)
    assert found
    return found[1]


def names_by_verdict(heading: str) -> dict[str, set[str]]:
    """Return what the tables of a section name, by what they say of it."""
    found: dict[str, set[str]] = {SAME: set(), DIFFERS: set(), ABSENT: set(), NEXT: set()}
    for row in _ROW.finditer(section(heading)):
        if row["here"] in found:
            found[row["here"]] |= {name["name"] for name in _NAME.finditer(row["there"])}
    return found


def is_global(name: str) -> bool:
    """Return whether a script finds it, as something that works."""
    family, _, member = name.encode().partition(b".")
    if family in ABSENT_FAMILIES or family not in GLOBALS:
        return False
    return member in MEMBERS.get(family, ()) if member else True


@cache
def compiled() -> Bytecode:
    return compile_lua_files()


def refusal(source: str) -> bytes:
    """Return the error that ends a script, in a VM of its own."""
    vm = VM(compiled(), INIT, 64 << 20, FakeCallbacks(), main_count=0)
    try:
        ended, reason, _ = run_to_end(vm, source)
    finally:
        vm.close()
    assert ended is Ended.ERROR
    return reason


def is_method(declared: str, name: str) -> bool:
    """Return whether what is declared so has a method of that name."""
    reason = refusal(f"local _ = {declared}('x').{name} error('it has')")
    assert reason.endswith(b"it has") or b"has no method" in reason, reason
    return reason.endswith(b"it has")


def methods_of_the_reference() -> Iterator[str]:
    for table in re.findall(r"^\| method \| \|$(.*?)^$", read("docs/reference/lua.md"), re.MULTILINE | re.DOTALL):
        yield from re.findall(r"`:(\w+)\(", table)


def test_methods_of_a_task_are_here_or_not_as_the_page_says() -> None:
    said = names_by_verdict("Tasks")
    here = (said[SAME] | said[DIFFERS]) - {"task"}
    assert len(here) >= 18
    assert [name for name in here if not is_method("task", name)] == []
    absent = said[ABSENT] - here
    assert len(absent) >= 6
    assert [name for name in absent if is_method("task", name)] == []


def test_every_method_of_the_reference_is_on_the_page() -> None:
    methods = set(methods_of_the_reference())
    assert {"command", "retries", "tasks", "on_complete"} <= methods
    assert [name for name in methods if name not in section("Tasks") + section("Workflows")] == []


def test_methods_of_a_workflow_are_here() -> None:
    for name in ("description", "version", "tasks", "config", "on_start", "on_complete", "build"):
        assert is_method("workflow.define", name)
    assert not is_method("workflow.define", "run_if")


def test_every_module_that_an_error_tells_of_is_on_the_page() -> None:
    page = read(PAGE)
    assert [name for name in ABSENT_MODULES if not re.search(rf"`{name}[`.]", page)] == []


def test_a_module_that_the_page_calls_absent_is_told_of() -> None:
    modules = {name.partition(".")[0] for name in names_by_verdict("Modules")[ABSENT] if "." in name}
    assert len(modules) >= 8
    partly_here = {"assert", "crypto", "data", "file_ops", "log", "os"}
    assert modules - partly_here - ABSENT_MODULES.keys() == set()


def test_modules_are_here_or_not_as_the_page_says() -> None:
    said = names_by_verdict("Modules")
    assert len(said[SAME]) >= 8
    assert len(said[ABSENT]) >= 60
    assert [name for name in said[SAME] if not is_global(name)] == []
    assert [name for name in said[ABSENT] | said[NEXT] if is_global(name)] == [], f"{PAGE} does not know of it yet"
