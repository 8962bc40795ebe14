"""Find the suites of a project: one for each job with Lua, and one for its server.

A suite's files are read here; which tests are in them, only Lua can tell.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from spyweb.errors import Problem, Refused
from spyweb.lua.session import Code
from spyweb.model import Isolation, JobId
from spyweb.runs.live import code_of
from spyweb.specs.discover import JobFile, Scan
from spyweb.specs.server_file import FOLDER as SERVER_FOLDER
from spyweb.specs.server_file import INIT, SERVER, TESTS, ServerFile, code_of_server, find_files, find_server
from spyweb.specs.tree import is_there, read_source
from spyweb.views.jobs import find_job, unknown_job

FILE = "tests.lua"  # in a job's folder
MARK = b"test_"  # how the name of a test begins
SERVER_TITLE = "server"
SERVER_TESTS = JobId(f"{SERVER}/tests")  # whose VMs these are: not those that answer
TIMEOUT_MS, CPU_LIMIT_MS = 300_000, 10_000  # of a server's test, as those of a job with default settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """The tests of one job, or of the server."""

    title: str  # what people call it: the job's id
    job: JobId  # whose stored keys and modules they see
    folder: str
    code: Code  # all files that a test's VM executes
    finding: Code  # the files in which tests are looked for
    agent: str = "local"
    timeout_ms: int = TIMEOUT_MS
    cpu_limit_ms: int = CPU_LIMIT_MS
    is_monitor: bool = False
    server: ServerFile | None = None  # what answers while they run


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundSuites:
    suites: tuple[Suite, ...] = ()
    broken: tuple[tuple[str, str], ...] = ()  # title and reason of those whose files don't load


def find_suites(root: Path, scanned: Scan, wanted: str | None) -> FoundSuites:
    """Find the suites of one job, by name or id, of the `server`, or all.  Raises Refused when there is no such job."""
    if wanted is None:
        return joined([*_every_job(root, scanned), *_server(root)])
    named = _server_by_name(root) if wanted == SERVER_TITLE else []
    job = find_job([file.spec for file in scanned.jobs.values()], wanted)
    if job is not None:
        named += _job(root, scanned.jobs[job], by_name=True)
    elif wanted in scanned.broken:
        named.append((wanted, _told(scanned.broken[JobId(wanted)])))
    elif not named:
        raise Refused(unknown_job([*scanned.jobs, *scanned.broken], wanted))
    return joined(named)


def joined(found: Iterable[Suite | tuple[str, str]]) -> FoundSuites:
    listed = list(found)
    return FoundSuites(
        suites=tuple(each for each in listed if isinstance(each, Suite)),
        broken=tuple(each for each in listed if not isinstance(each, Suite)),
    )


def _every_job(root: Path, scanned: Scan) -> Iterator[Suite | tuple[str, str]]:
    for file in sorted(scanned.jobs.values(), key=lambda file: file.spec.id):
        yield from _job(root, file)
    for job, problems in sorted(scanned.broken.items()):
        yield job, _told(problems)
    told = {problem for problems in scanned.broken.values() for problem in problems}
    others = (problem for problem in scanned.problems if problem not in told)
    yield from ((problem.file, str(problem)) for problem in others if is_there(root / problem.file))


def _job(root: Path, file: JobFile, *, by_name: bool = False) -> list[Suite | tuple[str, str]]:
    """Find the suite of a job; none where it has no tests, since its files are not executed just to see that."""
    tests = _source(root, f"{file.spec.folder}/{FILE}")
    if isinstance(tests, Problem):
        return [(file.spec.id, str(tests))]
    sources = [file.source, *(source for _, source in file.more)]
    if not tests and not by_name and not any(MARK in source for source in sources):
        return []
    spec = file.spec
    code = with_tests(code_of(file, 1), f"{spec.folder}/{FILE}", tests)
    return [
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
        )
    ]


def with_tests(code: Code, path: str, tests: bytes) -> Code:
    """Put a job's tests behind its files; alone, where it has no other Lua."""
    if not tests:
        return code
    if not code.source:
        return replace(code, chunk=path, source=tests, more=())
    return replace(code, more=(*code.more, (path, tests)))


def _source(root: Path, path: str) -> bytes | Problem:
    return read_source(root, path) if is_there(root / path) else b""


def _server_by_name(root: Path) -> list[Suite | tuple[str, str]]:
    found = _server(root)
    if not found:
        there = [path for path in (INIT, TESTS) if is_there(root / path)]
        raise Refused(f"tests of the server need {INIT} and {TESTS}: there is {there[0] if there else 'neither'}")
    return found


def _server(root: Path) -> list[Suite | tuple[str, str]]:
    """Find the suite of the server; none where one of its two files is missing."""
    read = list(find_files(root))
    problems = [each for each in read if isinstance(each, Problem)]
    sources = dict(each for each in read if not isinstance(each, Problem))
    if problems:
        return [(SERVER_TITLE, _told(problems))]
    answering = find_server(root)
    if not isinstance(answering, ServerFile) or TESTS not in sources:
        return []
    return [_server_suite(answering, sources[TESTS])]


def _server_suite(answering: ServerFile, tests: bytes) -> Suite:
    """Make the suite of the server.  Its tests have VMs like any job's: only what answers has a worker of its own."""
    code = replace(code_of_server(answering, 1), job=SERVER_TESTS, isolation=Isolation.SHARED)
    return Suite(
        title=SERVER_TITLE,
        job=SERVER,
        folder=SERVER_FOLDER,
        code=replace(code, more=((TESTS, tests),)),
        finding=replace(code, chunk=TESTS, source=tests),
        server=answering,
    )


def _told(problems: Iterable[Problem]) -> str:
    return "; ".join(map(str, problems))
