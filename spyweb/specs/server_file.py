"""Read the files of the project's own server."""

from __future__ import annotations

from pathlib import Path

from spyweb.errors import Problem
from spyweb.lua.session import Code, variable_rules
from spyweb.model import Isolation, JobId
from spyweb.permissions.policy import ANYTHING, Policy
from spyweb.specs.tree import find_leaving, is_there, read_source

SERVER = JobId("/server")  # whose stored keys and modules these are: the id of a job has no slash
FOLDER = "server"
INIT, TESTS = f"{FOLDER}/init.lua", f"{FOLDER}/tests.lua"


def find_server(root: Path) -> bytes | Problem | None:
    """Read the source of server/init.lua without running it; return None where the project has no server."""
    return _read(root, INIT)


def find_files(root: Path) -> tuple[dict[str, bytes], list[Problem]]:
    """Return the sources of the server and of its tests, by path, and the problems of unreadable ones."""
    read = {path: _read(root, path) for path in (INIT, TESTS)}
    sources = {path: found for path, found in read.items() if isinstance(found, bytes)}
    return sources, [found for found in read.values() if isinstance(found, Problem)]


def code_of_server(source: bytes, generation: int, worker: int = 0, policy: Policy = ANYTHING) -> Code:
    """Return the code for one of the workers that answer; no job runs in these: a flood of requests harms none."""
    job = JobId(f"{SERVER}/{worker}") if worker else SERVER
    return Code(
        job=job,
        generation=generation,
        chunk=INIT,
        source=source,
        isolation=Isolation.PROCESS,
        variables=variable_rules(policy, SERVER),
    )


def _read(root: Path, path: str) -> bytes | Problem | None:
    return find_leaving(root, path) or read_source(root, path) if is_there(root / path) else None
