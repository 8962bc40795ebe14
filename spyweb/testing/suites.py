"""Find the suites of a project: one for each job with Lua, and one for its server.

A suite's files are read here; which tests are in them, only Lua can tell.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from spyweb.errors import Problem, Refused
from spyweb.lua.session import Code
from spyweb.model import Isolation, JobId
from spyweb.permissions.policy import ANYTHING, Policy
from spyweb.runs.live import code_of
from spyweb.specs.discover import JobFile, Scan
from spyweb.specs.server_file import FOLDER as SERVER_FOLDER
from spyweb.specs.server_file import INIT, SERVER, TESTS, code_of_server, find_files
from spyweb.specs.tree import is_there, read_source
from spyweb.views.jobs import find_job, unknown_job

FILE = "tests.lua"  # in a job's folder
MARK = b"test_"  # how the name of a test begins
SERVER_TITLE = "server"
SERVER_TESTS = JobId(f"{SERVER}/tests")  # whose VMs these are: not those that answer
TIMEOUT_MS, CPU_LIMIT_MS = 300_000, 10_000  # of a server's test, as those of a job with default settings


class Suite(Struct, frozen=True, kw_only=True):
    """Describes the tests of one job, or of the server."""

    title: str  # what people call it: the job's id
    job: JobId  # whose stored keys and modules they see
    folder: str
    code: Code  # all files that a test's VM executes
    finding: Code  # the files in which tests are looked for
    agent: str = "local"
    timeout_ms: int = TIMEOUT_MS
    cpu_limit_ms: int = CPU_LIMIT_MS
    is_monitor: bool = False
    policy: Policy = ANYTHING
    server: bytes | None = None  # the source of what answers while they run


class FoundSuites(Struct):
    """Lists the suites of a project, and those whose files can't be read or do not load."""

    suites: list[Suite] = field(default_factory=list)
    broken: list[tuple[str, str]] = field(default_factory=list)  # title and reason

    def is_empty(self) -> bool:
        return not self.suites and not self.broken


def find_suites(root: Path, scanned: Scan, wanted: str | None, of_server: Policy = ANYTHING) -> FoundSuites:
    """Find the suites of one job, by name or id, of the `server`, or all.  Raises Refused when there is no such job."""
    found = FoundSuites()
    if wanted is None:
        _add_jobs(found, root, scanned)
        _add_server(found, root, of_server)
        return found
    if wanted == SERVER_TITLE:
        _add_server(found, root, of_server)
        if found.is_empty():
            there = [path for path in (INIT, TESTS) if is_there(root / path)]
            raise Refused(f"tests of the server need {INIT} and {TESTS}: there is {there[0] if there else 'neither'}")
    job = find_job([file.spec for file in scanned.jobs.values()], wanted)
    if job is not None:
        _add_job(found, root, scanned.jobs[job], by_name=True)
    elif wanted in scanned.broken:
        found.broken.append((wanted, _in_one_line(scanned.broken[JobId(wanted)])))
    elif found.is_empty():
        raise Refused(unknown_job([*scanned.jobs, *scanned.broken], wanted))
    return found


def _add_jobs(found: FoundSuites, root: Path, scanned: Scan) -> None:
    for file in sorted(scanned.jobs.values(), key=lambda file: file.spec.id):
        _add_job(found, root, file)
    for job, problems in sorted(scanned.broken.items()):
        found.broken.append((job, _in_one_line(problems)))
    of_jobs = {problem for problems in scanned.broken.values() for problem in problems}
    others = [problem for problem in scanned.problems if problem not in of_jobs and is_there(root / problem.file)]
    found.broken += [(problem.file, str(problem)) for problem in others]


def _add_job(found: FoundSuites, root: Path, file: JobFile, *, by_name: bool = False) -> None:
    """Add the suite of a job, unless it has no tests: its files are not executed just to find that out."""
    spec, path = file.spec, f"{file.spec.folder}/{FILE}"
    tests = read_source(root, path) if is_there(root / path) else b""
    if isinstance(tests, Problem):
        found.broken.append((spec.id, str(tests)))
        return
    sources = [file.source, *(source for _, source in file.more)]
    if not tests and not by_name and not any(MARK in source for source in sources):
        return
    code = with_tests(code_of(file, 1), path, tests)
    found.suites.append(
        Suite(
            title=spec.id,
            job=spec.id,
            folder=spec.folder,
            code=code,
            finding=code,
            agent=spec.agent,
            timeout_ms=spec.timeout_ms,
            cpu_limit_ms=spec.cpu_limit_ms,
            is_monitor=spec.monitor is not None,
            policy=spec.policy,
        )
    )


def with_tests(code: Code, path: str, tests: bytes) -> Code:
    """Return a job's code with its tests behind it, or the tests alone where it has no other Lua."""
    if not tests:
        return code
    if not code.source:
        return replace(code, chunk=path, source=tests, more=())
    return replace(code, more=(*code.more, (path, tests)))


def _add_server(found: FoundSuites, root: Path, policy: Policy) -> None:
    """Add the suite of the server, unless one of its two files is missing.

    Its tests have VMs like any job's: only what answers has a worker of its own.
    """
    read = list(find_files(root))
    problems = [each for each in read if isinstance(each, Problem)]
    if problems:
        found.broken.append((SERVER_TITLE, _in_one_line(problems)))
        return
    sources = dict(each for each in read if not isinstance(each, Problem))
    if INIT not in sources or TESTS not in sources:
        return
    code = replace(code_of_server(sources[INIT], 1, policy=policy), job=SERVER_TESTS, isolation=Isolation.SHARED)
    found.suites.append(
        Suite(
            title=SERVER_TITLE,
            job=SERVER,
            folder=SERVER_FOLDER,
            code=replace(code, more=((TESTS, sources[TESTS]),)),
            finding=replace(code, chunk=TESTS, source=sources[TESTS]),
            policy=policy,
            server=sources[INIT],
        )
    )


def _in_one_line(problems: Iterable[Problem]) -> str:
    return "; ".join(map(str, problems))
