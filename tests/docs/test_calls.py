"""Nothing that blocks is called on the loop, no process starts without a bound, no codec is one that a client names."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.fakes.repository import ROOT, modules, nodes, read

BLOCKING = {
    "write", "writelines", "flush", "write_text", "write_bytes", "read_text", "read_bytes", "fsync", "fdatasync",
    "wrap_socket", "do_handshake", "sendall", "recv",
}  # fmt: skip

# Whole folders that have no loop, or leave it: (folder, why).  So have the commands of the subjects.
ELSEWHERE = {
    "spyweb/cli/": "a command is a process of its own",
    "spyweb/daemon/commands/": "the same",
    "spyweb/reference/": "commands and `make docs` alone use it",
    "spyweb/lua/worker/": "a worker is a process of its own",
    "spyweb/extraction/worker/": "so is the one that parses pages",
    "spyweb/alerts/sender/worker/": "so is the one that speaks to Apprise",
    "spyweb/confined/sandbox.py": "runs in those processes",
    "spyweb/confined/frames.py": "those processes wait by it",
    "spyweb/programs/nanny.py": "a nanny is a process of its own",
    "spyweb/programs/sweep.py": "runs in those processes",
    "spyweb/programs/cgroup.py": "runs in those processes, or before the daemon serves",
    "spyweb/store/": "the writer and the readers are threads",
}

COMMANDS = re.compile(r"spyweb/subjects/\w+/(commands|stored_jobs)\b")

# What is called → why it does not block
HARMLESS = {
    "transport.write": "a transport of the loop keeps what the socket does not take",
    "self._transport.write": "the same",
    "stdin.write": "the same",
    "writer.write": "the same, in a handshake of tls_probe, and in other probes",
    "received.write": "into memory, in the same",
    "self.transport.write": "the same",
    "real.write": "the same",
    "self._bulk.write": "puts a frame together",
    "self._small.write": "puts a frame together",
    "response.write": "awaited: aiohttp's own, over a transport",
    "job_logs.write": "JobLogs writes in a thread",
    "lines.write": "the same",
    "failures.write": "the same",
    "sys.stdout.write": "queued for a thread, see logs/queued.py",
    "sys.stdout.flush": "the same",
    "sys.stderr.write": "the same",
    "sys.stderr.flush": "the same",
    "self._stream.write": "a stream that the caller of set_up chose; the daemon's are queued",
    "self._stream.flush": "the same",
    "self._ends.flush": "hands a batch to the store, which has a thread",
    "self.flush": "the same",
}

# Functions that run in a thread, or before there is a loop: module, function, why
IN_THREADS = {
    ("spyweb/checks/settings.py", "script_of"): "the files of a project are read in a thread",
    ("spyweb/files.py", "open_folder"): "JobLogs, the ops on files and the report of a cycle call it in threads",
    ("spyweb/files.py", "replace"): "the same",
    ("spyweb/files.py", "write_whole"): "the same",
    ("spyweb/logs/queued.py", "_write_queued"): "in the thread of the queue",
    ("spyweb/ops/files/files.py", "remove"): "the ops of `file` call it in threads",
    ("spyweb/lua/spawner.py", "_read"): "a socket that does not block",
    ("spyweb/daemon/check.py", "_has_no_new_privileges"): "`spyweb check`, a command of its own",
    ("spyweb/daemon/doctor.py", "_certificate"): "`spyweb doctor`, a command of its own",
    ("spyweb/daemon/doctor.py", "_time_syncs"): "the same",
    ("spyweb/programs/running.py", "_hear"): "a socket that does not block",
    ("spyweb/programs/running.py", "_write"): "a pipe or a socket that does not block",
    ("spyweb/files.py", "replace_all"): "the status page calls it in a thread, and a command of its own",
    ("spyweb/web/pages/site.py", "static_files"): "the renderer is made in a thread, at the first page",
    ("spyweb/settings/load.py", "machine_timezone"): "a small file of the system, read before the daemon serves",
    ("spyweb/daemon/build.py", "place_of"): "the same",
}


def calls(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """The function and the call, of each one that may block."""
    for function in nodes(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for node in nodes(function):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in BLOCKING:
                    yield function.name, ast.unparse(node.func)


def found() -> set[tuple[str, str, str]]:
    return {
        (name, function, call)
        for name, tree in modules()
        if not name.startswith(tuple(ELSEWHERE)) and not COMMANDS.match(name)
        for function, call in calls(tree)
    }


def test_what_blocks_is_called_in_threads_only() -> None:
    unexplained = sorted(
        f"{module}: {call} in {function}"
        for module, function, call in found()
        if call not in HARMLESS and (module, function) not in IN_THREADS
    )
    assert not unexplained


def test_each_exception_is_still_needed() -> None:
    used = found()
    assert HARMLESS.keys() <= {call for _, _, call in used}
    assert IN_THREADS.keys() <= {(module, function) for module, function, _ in used}
    assert all((ROOT / place).exists() for place in ELSEWHERE)


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
    ("spyweb/store/user_sql/user_db.py", "__init__"): "one",
    ("spyweb/store/user_sql/process.py", "_fork"): "64 or an eighth of the descriptors (store/user_sql/user_db.py)",
    ("spyweb/extraction/process.py", "live"): "PROCESSES that serve, MOST and SPARE in all (extraction/extractor.py)",
    ("spyweb/alerts/sender/helper.py", "start"): "one, while something is sent",
    ("spyweb/alerts/sender/worker/rendering.py", "render_apart"): "one at a time, waited for, in that process",
    ("spyweb/ops/notify_desktop.py", "run_command"): "AT_ONCE, for 10 s at most",
    ("spyweb/cli/systemd.py", "find_systemctl"): "one, waited for, in a command of its own",
}


def starts() -> Iterator[tuple[str, str]]:
    """Yield the module and the function of each call that starts a process."""
    for path, tree in modules():
        calls = [node for node in nodes(tree) if isinstance(node, ast.Call) and _is_start(node.func)]
        functions = [node for node in nodes(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
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
        for node in nodes(tree):
            if isinstance(node, ast.ImportFrom) and node.module in MODULES - {"asyncio"}:
                assert not [each.name for each in node.names if each.name in names], path


# Parts of aiohttp's requests that do so; in their place are those of web/body.py.
METHODS = {"post", "text", "json", "multipart"}
PROPERTIES = {"charset", "content_type"}


def decoding(path: str, tree: ast.Module) -> list[str]:
    """Return the places of a module that would decode so."""
    called = [node.func for node in nodes(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
    read = [node for node in nodes(tree) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)]
    found = [node for node in called if node.attr in METHODS] + [node for node in read if node.attr in PROPERTIES]
    return [f"{path}:{node.lineno}: {ast.unparse(node)}" for node in found]


def test_no_request_is_decoded_by_a_codec_that_it_names() -> None:
    of_web = [(path, tree) for path, tree in modules() if path.startswith(("spyweb/subjects/", "spyweb/web/"))]
    assert len(of_web) > 50
    assert [place for path, tree in of_web for place in decoding(path, tree)] == []


def test_what_decodes_so_is_found() -> None:
    client = "tests/fakes/client.py"
    found = {place.rpartition(" ")[2] for place in decoding(client, ast.parse(read(client)))}
    assert found == {"client.post", "answer.json", "answer.content_type"}
