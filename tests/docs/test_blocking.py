"""Nothing that blocks is called on the daemon's loop: whoever adds such a call says here why it does not block."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.fakes.repository import ROOT, modules

BLOCKING = {
    "write", "writelines", "flush", "write_text", "write_bytes", "read_text", "read_bytes", "fsync", "fdatasync",
    "wrap_socket", "do_handshake", "sendall", "recv",
}  # fmt: skip

# Whole folders that have no loop, or leave it: (folder, why)
ELSEWHERE = {
    "spyweb/cli/": "a command is a process of its own",
    "spyweb/daemon/commands/": "the same",
    "spyweb/subjects/access/commands.py": "the same",
    "spyweb/subjects/drift/commands.py": "the same",
    "spyweb/subjects/health/commands.py": "the same",
    "spyweb/subjects/incidents/commands.py": "the same",
    "spyweb/subjects/jobs/commands.py": "the same",
    "spyweb/subjects/jobs/logs.py": "the same",
    "spyweb/subjects/jobs/stored_jobs.py": "the same",
    "spyweb/subjects/outbox/commands.py": "the same",
    "spyweb/subjects/records/commands.py": "the same",
    "spyweb/subjects/runs/artifacts.py": "the same",
    "spyweb/subjects/runs/commands.py": "the same",
    "spyweb/subjects/state/commands/": "the same",
    "spyweb/subjects/workflows/commands.py": "the same",
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

# What is called → why it does not block
HARMLESS = {
    "transport.write": "a transport of the loop keeps what the socket does not take",
    "self._transport.write": "the same",
    "stdin.write": "the same",
    "writer.write": "the same, in a handshake of tls_probe",
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
    ("spyweb/files.py", "open_folder"): "JobLogs, the ops on files and the report of a cycle call it in threads",
    ("spyweb/files.py", "replace"): "the same",
    ("spyweb/files.py", "write_whole"): "the same",
    ("spyweb/logs/queued.py", "_write_whole"): "in the thread of the queue",
    ("spyweb/ops/files/files.py", "remove"): "the ops of `file` call it in threads",
    ("spyweb/lua/spawner.py", "_read"): "a socket that does not block",
    ("spyweb/daemon/check.py", "_has_no_new_privileges"): "`spyweb check`, a command of its own",
    ("spyweb/programs/running.py", "_hear"): "a socket that does not block",
    ("spyweb/programs/running.py", "_write"): "a pipe or a socket that does not block",
    ("spyweb/web/pages/static_files.py", "_read"): "the renderer is made in a thread, at the first page",
    ("spyweb/settings/load.py", "_written_zone"): "a small file of the system, read before the daemon serves",
}


def calls(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """The function and the call, of each one that may block."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for node in ast.walk(function):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in BLOCKING:
                    yield function.name, ast.unparse(node.func)


def found() -> set[tuple[str, str, str]]:
    return {
        (name, function, call)
        for name, tree in modules()
        if not name.startswith(tuple(ELSEWHERE))
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
