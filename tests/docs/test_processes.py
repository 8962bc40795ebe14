"""Every place that starts a process, and what bounds the number of those: whoever adds one says it here."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.fakes.repository import modules

STARTS = {
    *("Popen", "check_call", "check_output", "getoutput", "getstatusoutput", "ProcessPoolExecutor"),
    *("create_subprocess_exec", "create_subprocess_shell", "subprocess_exec", "subprocess_shell"),
    *("forkpty", "posix_spawn", "posix_spawnp", "startfile"),
    *(f"spawn{kind}" for kind in ("l", "le", "lp", "lpe", "v", "ve", "vp", "vpe")),
}
OF_MODULES = {  # names that others have too
    *(("subprocess", "run"), ("subprocess", "call"), ("os", "fork"), ("os", "system"), ("os", "popen")),
    *(("pty", "fork"), ("pty", "spawn"), ("multiprocessing", "Process"), ("multiprocessing", "Pool")),
}
MODULES = {"subprocess", "os", "asyncio", "pty", "multiprocessing", "concurrent.futures"}

# Module, function → how many there may be, and by what
BOUNDS = {
    ("spyweb/confined/child.py", "__init__"): "those that make a ChildProcess",
    ("spyweb/lua/spawner.py", "launch_zygote"): "one, and those that hang until their last worker has ended",
    ("spyweb/lua/worker/zygote.py", "_fork"): "shared workers: the setting `workers`; those of single jobs: a third of "
    "the descriptors, four starting at once (lua/supervisor.py)",
    ("spyweb/programs/runner.py", "start_forking"): "one",
    ("spyweb/programs/nanny.py", "_fork"): "a nanny for each command, `[exec] at_once` or an eighth of the "
    "descriptors (programs/runner.py)",
    ("spyweb/programs/nanny.py", "_start"): "one for each nanny; what it starts itself: `[exec] processes`",
    ("spyweb/store/user_sql/session.py", "__init__"): "one",
    ("spyweb/store/user_sql/process.py", "_fork"): "64 or an eighth of the descriptors (store/user_sql/user_db.py)",
    ("spyweb/extraction/process.py", "live"): "PROCESSES that serve, MOST and SPARE in all (extraction/extractor.py)",
    ("spyweb/alerts/sender/helper.py", "start"): "one, while something is sent",
    ("spyweb/alerts/sender/worker/rendering.py", "_ask"): "one at a time, waited for, in that process",
    ("spyweb/ops/notify_desktop.py", "run_command"): "AT_ONCE, for 10 s at most",
    ("spyweb/cli/systemd.py", "find_systemctl"): "one, waited for, in a command of its own",
}


def starts() -> Iterator[tuple[str, str]]:
    """Yield the module and the function of each call that starts a process."""
    for path, tree in modules():
        nodes = list(ast.walk(tree))
        calls = [node for node in nodes if isinstance(node, ast.Call) and _is_start(node.func)]
        functions = [node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
        for call in calls:
            around = [each for each in functions if each.lineno <= call.lineno <= (each.end_lineno or 0)]
            yield path, max(around, key=lambda each: each.lineno).name if around else ""


def _is_start(called: ast.expr) -> bool:
    match called:
        case ast.Attribute(value=ast.Name(id=module), attr=name) if (module, name) in OF_MODULES:
            return True
        case ast.Name(id="ChildProcess"):
            return True
        case ast.Attribute(attr=name):
            return name in STARTS
    return False


def test_each_place_that_starts_a_process_says_what_bounds_them() -> None:
    assert set(starts()) == BOUNDS.keys()


def test_such_a_function_is_called_by_its_module() -> None:
    names = STARTS | {name for _, name in OF_MODULES}
    for path, tree in modules():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module in MODULES - {"asyncio"}:
                assert not [each.name for each in node.names if each.name in names], path
