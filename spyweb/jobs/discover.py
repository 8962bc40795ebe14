"""What jobs the project's files describe.  Reads files and runs nothing; whatever they hold, it does not raise.

A job that is wrong does not hinder the others: it is among `broken`, so that an older version of it can run on.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from spyweb.errors import Problem
from spyweb.jobs.absent import find_absent
from spyweb.jobs.block import Block, code_of_file, find_misplaced_block, read_block
from spyweb.jobs.calls_run import find_own_call
from spyweb.jobs.follow import find_cycles
from spyweb.jobs.parse import Draft, Place, job_id, parse_job, usable_defaults
from spyweb.jobs.tree import Notes, find_job_files, read_source
from spyweb.model import JobId, JobSpec
from spyweb.settings import DaemonSettings, Settings
from spyweb.settings.reading import nearest
from spyweb.settings.sections import FILE
from spyweb.settings.tables import Table

_NAME_LINE = re.compile(rb"^[ \t]*--[ \t]*name[ \t]*=[ \t]*[\"']([^\"'\r\n]*)[\"']", re.MULTILINE)
_HEAD = 4_096  # bytes in which the name of a broken block is looked for
_TOLD = 8  # jobs of a cycle, before it is cut short
_NOTHING = Table(file=FILE)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFile:
    """One version of a job, as it stands on disk."""

    spec: JobSpec
    source: bytes = field(repr=False)  # fit for a Lua loader: no byte order mark, a `#!` line made a comment
    digest: str  # of the code: a change of the settings alone leaves it as it is
    more: tuple[tuple[str, bytes], ...] = ()  # path and source of its further Lua files, in the order they are executed


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """Everything that the files say."""

    jobs: Mapping[JobId, JobFile]
    broken: Mapping[JobId, Sequence[Problem]]  # the file is there, and wrong
    problems: Sequence[Problem]  # all of them, those in `broken` included
    warnings: Sequence[Problem]
    ignored: Sequence[Problem]  # files that are no jobs, worth a debug line


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidate:
    """One file that wants to be a job."""

    id: JobId
    file: str
    source: bytes
    draft: Draft | None  # None: its settings could not even be read
    problems: list[Problem]
    digest: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Context:
    """What all files are read with."""

    root: Path
    daemon: DaemonSettings
    defaults: Table
    overrides: Mapping[JobId, Table]
    notes: Notes


def scan(root: Path, settings: Settings) -> Scan:
    notes = Notes()
    defaults, wrong_defaults = usable_defaults(settings.defaults, settings.daemon)
    notes.problems.extend(wrong_defaults)
    overrides = _overrides(settings.jobs, notes)
    context = _Context(root=root, daemon=settings.daemon, defaults=defaults, overrides=overrides, notes=notes)
    candidates = [_candidate(place, context) for place in find_job_files(root, notes)]
    groups = _by_id(candidates)
    _refuse_duplicates(groups)
    _refuse_unknown_after(groups)
    _refuse_cycles(groups)
    _warn_of_unused(overrides, groups, notes)
    return _result(candidates, groups, notes)


def _overrides(tables: Mapping[str, Table], notes: Notes) -> dict[JobId, Table]:
    """The sections by id; they may be headed with a job's name as well."""
    found: dict[JobId, Table] = {}
    for name, table in tables.items():
        if found.setdefault(job_id(name), table) is not table:
            notes.problems.append(table.problem(f"a second section for the job {job_id(name)}"))
    return found


def _candidate(place: Place, context: _Context) -> _Candidate:
    source = read_source(context.root, place.file)
    if isinstance(source, Problem):
        return _unread(job_id(place.name), b"", source)
    block = read_block(source, place.file)
    if isinstance(block, Problem):
        return _unread(_guess_id(source, place), source, block)
    context.notes.warnings.extend(_doubts(source, block, place.file))
    draft = parse_job(
        block.table,
        place,
        override=context.overrides.get(_id_of(block.table, place), _NOTHING),
        defaults=context.defaults,
        daemon=context.daemon,
    )
    return _Candidate(
        id=draft.spec.id,
        file=place.file,
        source=source,
        draft=draft,
        problems=draft.problems,
        digest=_digest(source, block),
    )


def _unread(job: JobId, source: bytes, problem: Problem) -> _Candidate:
    return _Candidate(id=job, file=problem.file, source=source, draft=None, problems=[problem])


def _guess_id(source: bytes, place: Place) -> JobId:
    """A broken block may still show the name, and with it which running job the file belongs to."""
    named = _NAME_LINE.search(source, 0, _HEAD)
    return job_id(named[1].decode("utf-8", "replace") if named else place.name)


def _id_of(block: Table, place: Place) -> JobId:
    name = block.values.get("name", place.name)
    return job_id(name.strip() if isinstance(name, str) else place.name)


def _doubts(source: bytes, block: Block, file: str) -> Iterator[Problem]:
    if line := find_misplaced_block(source, block):
        yield Problem(file, line, None, "this settings block is not at the top of the file and has no effect")
    if line := find_own_call(source):
        yield Problem(file, line, None, "the file defines run and calls it; spyweb calls it too")
    for line, name in find_absent(source):
        yield Problem(file, line, None, f"{name} is not part of this version")


def _by_id(candidates: Sequence[_Candidate]) -> dict[JobId, list[_Candidate]]:
    groups: dict[JobId, list[_Candidate]] = {}
    for candidate in candidates:
        if candidate.id:
            groups.setdefault(candidate.id, []).append(candidate)
    return groups


def _refuse_duplicates(groups: Mapping[JobId, Sequence[_Candidate]]) -> None:
    for job, (first, *others) in groups.items():
        for other in others:
            reason = f'gives the id "{job}", and so does {first.file}; ids must differ'
            other.problems.append(Problem(other.file, None, None, reason))


def _refuse_unknown_after(groups: Mapping[JobId, Sequence[_Candidate]]) -> None:
    for draft, problems in _drafts(groups):
        for after in draft.spec.after:
            if after.job not in groups:
                reason = f'no job "{after.job}"{nearest(after.job, groups)}'
                problems.append(draft.problem(reason, "after"))


def _refuse_cycles(groups: Mapping[JobId, Sequence[_Candidate]]) -> None:
    found = {draft.spec.id: (draft, problems) for draft, problems in _drafts(groups)}
    follows = {job: [after.job for after in draft.spec.after] for job, (draft, _) in found.items()}
    for cycle in find_cycles({job: followed for job, followed in follows.items() if followed}):
        shown = cycle if len(cycle) <= _TOLD else [*cycle[:_TOLD], "…"]
        told = " after ".join([*shown, cycle[0]])
        for job in cycle:
            draft, problems = found[job]
            problems.append(draft.problem(f"these jobs wait for each other: {told}", "after"))


def _drafts(groups: Mapping[JobId, Sequence[_Candidate]]) -> Iterator[tuple[Draft, list[Problem]]]:
    for group in groups.values():
        for candidate in group:
            if candidate.draft:
                yield candidate.draft, candidate.problems


def _warn_of_unused(overrides: Mapping[JobId, Table], groups: Mapping[JobId, object], notes: Notes) -> None:
    for job, table in overrides.items():
        if job not in groups:
            notes.warnings.append(table.problem(f'no job "{job}"{nearest(job, groups)}'))


def _result(candidates: Sequence[_Candidate], groups: Mapping[JobId, Sequence[_Candidate]], notes: Notes) -> Scan:
    problems = {job: [problem for each in group for problem in each.problems] for job, group in groups.items()}
    every = [*notes.problems, *(problem for each in candidates for problem in each.problems)]
    return Scan(
        jobs={
            job: JobFile(spec=group[0].draft.spec, source=group[0].source, digest=group[0].digest)
            for job, group in groups.items()
            if group[0].draft and not problems[job]
        },
        broken={job: found for job, found in problems.items() if found},
        problems=sorted(every, key=lambda problem: (problem.file, problem.line or 0)),
        warnings=notes.warnings,
        ignored=notes.ignored,
    )


def _digest(source: bytes, block: Block) -> str:
    return hashlib.blake2b(code_of_file(source, block), digest_size=16).hexdigest()
