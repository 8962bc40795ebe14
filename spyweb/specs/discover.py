"""Find the jobs that the project's files describe.  Reads files and runs nothing; no content makes it raise.

A job that is wrong does not hinder the others: it is among `broken`, so that an older version of it can run on.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from msgspec import Struct, structs

from spyweb.checks.settings import CHECK, KINDS, CheckKind, script_of
from spyweb.errors import Problem
from spyweb.incidents.truth import JOB
from spyweb.model import JobId, JobSpec
from spyweb.ops.sources import Sources
from spyweb.settings.alerts import AlertSettings
from spyweb.settings.permissions import find_writable_program
from spyweb.settings.reading import Names, nearest
from spyweb.settings.script_values import merge
from spyweb.settings.sections import FILE, Settings, StatusPageSettings
from spyweb.settings.tables import TomlTable
from spyweb.specs.block import Block, code_of_file, read_block
from spyweb.specs.linting.linter import Doubts, Linter, doubts_of_hooks, doubts_of_script, doubts_of_server, read_module
from spyweb.specs.maintenance import MaintenanceRule, doubts_of_maintenance, missing_job, pattern_of, take_maintenance
from spyweb.specs.parse import (
    ALERTS,
    DEPENDS_ON,
    FOLDER,
    PERMISSIONS,
    JobFile,
    JobPlace,
    expects_pings,
    job_id,
    parse_job,
    usable_defaults,
)
from spyweb.specs.server_file import FOLDER as SERVER_FOLDER
from spyweb.specs.server_file import INIT, find_server
from spyweb.specs.tree import LIST, MONITOR, Notes, find_job_files, read_list, read_source, read_toml

_JOBS = "jobs"  # the only key of jobs.toml
_NAME_LINE = re.compile(rb"^[ \t]*(?:--[ \t]*)?name[ \t]*=[ \t]*[\"']([^\"'\r\n]*)[\"']", re.MULTILINE)
_HEAD = 4_096  # bytes in which the name of a broken block is looked for
_SHOWN = 8  # jobs of a cycle, before it is cut short
_NOTHING = TomlTable(file=FILE)


class Scan(Struct, frozen=True, kw_only=True):
    jobs: Mapping[JobId, JobFile]
    broken: Mapping[JobId, Sequence[Problem]]  # the file is there, and wrong
    unsure: Mapping[str, Sequence[Problem]]  # by file or folder, of those that don't tell for sure whose they are
    problems: Sequence[Problem]  # all of them, those in `broken` included
    warnings: Sequence[Problem]
    maintenance: tuple[MaintenanceRule, ...] = ()  # the rules that are right
    maintenance_is_whole: bool = True  # there are no others
    broken_lua: Sequence[tuple[str, bytes]] = ()  # path and source of the Lua files of `broken`, which may not compile
    broken_specs: Sequence[JobSpec] = ()  # of `broken`, as far as they can be made out


class _Context(Struct, frozen=True, kw_only=True):
    """The settings and notes that all files of one scan share."""

    root: Path
    settings: Settings  # whose [defaults] are those that are right, with [values]
    overrides: Mapping[JobId, TomlTable]
    notes: Notes
    modules: Sources
    linter: Linter

    def doubts(self, file: str, folder: str, texts: Sequence[bytes], doubts: Doubts) -> tuple[Problem, ...]:
        """Return the doubts about the Lua files of a folder; a module is found as its `require` finds it."""
        read = partial(read_module, self.modules, folder)
        return self.linter.look(file, _digest(*texts).encode(), doubts, read)


def scan(root: Path, settings: Settings, linter: Linter | None = None) -> Scan:
    notes = Notes()
    linter = linter or Linter()
    linter.begin()
    defaults, wrong_defaults = usable_defaults(settings)
    notes.problems.extend(wrong_defaults)
    overrides = _overrides(settings.jobs, notes)
    context = _Context(
        root=root,
        settings=replace(settings, defaults=_with_values(defaults, settings.values)),
        overrides=overrides,
        notes=notes,
        modules=Sources(root),
        linter=linter,
    )
    places = find_job_files(root, notes, has_others=any(map(expects_pings, overrides.values())))
    drafts = [draft for place in places if (draft := _job(place, context))]
    drafts += _listed(context)
    drafts += _elsewhere({draft.spec.id for draft in drafts}, context)
    server = find_server(root)
    if isinstance(server, bytes):
        doubts = partial(doubts_of_server, [(INIT, server)])
        notes.warnings.extend(context.doubts(INIT, SERVER_FOLDER, [server], doubts))
    groups: dict[JobId, list[JobFile]] = {}
    for draft in drafts:
        if draft.spec.id:
            groups.setdefault(draft.spec.id, []).append(draft)
    _refuse_duplicates(groups)
    _refuse_unknown_after(groups)
    _refuse_cycles(groups)
    _refuse_dependencies(groups)
    _warn_of_unknown_parents(groups, settings.alerts, notes)
    _warn_of_unused(overrides, groups, notes)
    wrong_rules: list[Problem] = []
    rules = take_maintenance(settings.maintenance, settings.daemon.timezone, wrong_rules)
    notes.problems.extend(wrong_rules)
    notes.warnings.extend(doubts_of_maintenance(rules, groups))
    if settings.status_page:
        notes.warnings.extend(_doubts_of_page(settings.status_page, groups, root))
    result = _result(drafts, groups, notes)
    kept = tuple(rule for rule, _ in rules)
    return structs.replace(result, maintenance=kept, maintenance_is_whole=not wrong_rules)


def _doubts_of_page(
    page: StatusPageSettings, groups: Mapping[JobId, Sequence[JobFile]], root: Path
) -> Iterator[Problem]:
    """Yield a warning for each job, tag or file that is not there."""
    names, tags = Names(groups), {tag for draft in _read(groups) for tag in draft.spec.tags}
    for number, (_, jobs) in enumerate(page.groups, 1):
        for reason in filter(None, (missing_job(pattern_of(name) or name, groups, names) for name in jobs)):
            yield page.table.problem(reason, f"groups[{number}]", "jobs")
    yield from (page.table.problem(f'no job has the tag "{tag}"', "tags") for tag in page.tags if tag not in tags)
    for key, file in (("logo", page.logo), ("style", page.style)):
        if file and not (root / file).is_file():
            yield page.table.problem(f"there is no file {file}", key)


def _with_values(defaults: TomlTable, values: TomlTable) -> TomlTable:
    """Return `[defaults]` with what all jobs see in `values`."""
    if not values.values:
        return defaults
    of_defaults = defaults.values.get("values")
    shown = merge([of_defaults if isinstance(of_defaults, Mapping) else {}, values.values])
    return defaults.with_values({**defaults.values, "values": shown})


def _overrides(tables: Mapping[str, TomlTable], notes: Notes) -> dict[JobId, TomlTable]:
    """Return the `[jobs.ID]` sections by id; they may be headed with a job's name as well."""
    found: dict[JobId, TomlTable] = {}
    for name, table in tables.items():
        if found.setdefault(job_id(name), table) is not table:
            notes.problems.append(table.problem(f"a second section for the job {job_id(name)}"))
    return found


def _job(place: JobPlace, context: _Context) -> JobFile | None:
    """Read the files of a job; None for a bare TOML file that is no check."""
    if place.is_script:
        return _script(place, context)
    table = read_toml(context.root, place.file)
    if not place.is_monitor and isinstance(table, TomlTable) and CHECK not in table.values:
        kinds = " or ".join(f'"{kind}"' for kind in CheckKind)
        reason = f"is no job: a check says check = {kinds}; a monitor's settings are in {place.folder}/{MONITOR}"
        context.notes.warnings.append(Problem(place.file, None, None, reason, is_warning=True))
        return None
    return _watching(table, place, context)


def _script(place: JobPlace, context: _Context) -> JobFile:
    source = read_source(context.root, place.file)
    if isinstance(source, Problem):
        return _unread(job_id(place.name), source)
    block = read_block(source, place.file)
    if isinstance(block, Problem):
        named = _NAME_LINE.search(source, 0, _HEAD)  # a broken block may still show whose it is
        name = named[1].decode("utf-8", "replace") if named else place.name
        draft = _unread(job_id(name), block, (place.file, source))
        whole = Block(table=_NOTHING, end=len(source))  # another block in the file is no news beside this one
        doubts = partial(doubts_of_script, (place.file, source), whole)
        found = context.doubts(place.file, draft.spec.folder, [source], doubts)
        draft.warnings.extend(each for each in found if each.line != block.line)
        return draft
    draft, code = _draft(block.table, place, context), code_of_file(source, block)
    doubts = partial(doubts_of_script, (place.file, source), block)
    draft.warnings.extend(context.doubts(place.file, draft.spec.folder, [source], doubts))
    draft.warnings.extend(_doubts_of_conditions(draft, code))
    return structs.replace(draft, lua=((place.file, source),), digest=_digest(code))


def _listed(context: _Context) -> list[JobFile]:
    table = read_list(context.root)
    if isinstance(table, Problem):
        context.notes.refused.append(table)
        return []
    found = table.tables(_JOBS, context.notes.refused)
    strangers = (key for key in table.values if key != _JOBS)
    context.notes.warnings.extend(table.problem(f"unknown key{nearest(key, [_JOBS])}", key) for key in strangers)
    place = JobPlace(file=LIST, folder="", name="", is_monitor=True)
    return [_watching(inner, place, context) for inner in found]


def _elsewhere(known: Collection[JobId], context: _Context) -> list[JobFile]:
    """Return the jobs that have no file: [jobs.ID] says that they run elsewhere, and tell of it by pings."""
    return [
        _watching(_NOTHING, JobPlace(file=FILE, folder=f"{FOLDER}/{job}", name=job), context)
        for job, table in context.overrides.items()
        if job not in known and expects_pings(table)
    ]


def _watching(table: TomlTable | Problem, place: JobPlace, context: _Context) -> JobFile:
    """Read a monitor's settings and its Lua files; or those of a job that expects pings, which has none."""
    if isinstance(table, TomlTable) and CHECK in table.values:
        return _check(table, place, context)
    if isinstance(table, TomlTable) and expects_pings(table):
        place = structs.replace(place, is_monitor=False, hooks=())
    draft = _unread(job_id(place.name), table) if isinstance(table, Problem) else _draft(table, place, context)
    read = [(path, read_source(context.root, path)) for path in place.hooks]
    sources = tuple((path, source) for path, source in read if not isinstance(source, Problem))
    texts = [part for path, source in sources for part in (path.encode(), source)]
    draft.problems.extend(source for _, source in read if isinstance(source, Problem))
    draft.warnings.extend(context.doubts(place.file, draft.spec.folder, texts, partial(doubts_of_hooks, sources)))
    return structs.replace(draft, lua=sources, digest=_digest(*texts))


def _check(table: TomlTable, place: JobPlace, context: _Context) -> JobFile:
    """Read the settings of a check, whose script comes with spyweb."""
    kind = str(table.values[CHECK])
    draft = _draft(table, structs.replace(place, is_monitor=False, check=kind), context)
    reason = "a check has no Lua of its own; `spyweb check --show KIND` prints its script, to copy"
    draft.problems.extend(Problem(path, None, None, reason) for path in place.hooks)
    path, source = script_of(CheckKind(kind)) if kind in KINDS else ("", b"")
    return structs.replace(draft, lua=((path, source),) if path else (), digest=_digest(source))


def _draft(own: TomlTable, place: JobPlace, context: _Context) -> JobFile:
    name = own.values.get("name", place.name)
    override = context.overrides.get(job_id(name.strip() if isinstance(name, str) else place.name), _NOTHING)
    draft = parse_job(own, place, override=override, settings=context.settings)
    if reason := find_writable_program(draft.spec.policy, context.root, draft.spec.folder):
        draft.problems.append(draft.problem(f"exec: {reason}", PERMISSIONS))
    return draft


def _unread(job: JobId, problem: Problem, *lua: tuple[str, bytes]) -> JobFile:
    spec = JobSpec(id=job, name=job, path=problem.file, folder="")
    return JobFile(spec=spec, problems=[problem], warnings=[], lua=lua, is_read=False)


def _doubts_of_conditions(draft: JobFile, code: bytes) -> Iterator[Problem]:
    """Yield the conditions that the file never names; a module, or `_G`, may define one, but its name is written."""
    conditions = list(dict.fromkeys(on.when for on in draft.spec.on if on.when))
    written = set(re.findall(rb"\w++", code)) if conditions else set()
    for name in conditions:
        if name.encode() not in written:
            yield draft.problem(f"when: there is no function {name} in {draft.spec.path}", "on")


def _refuse_duplicates(groups: Mapping[JobId, Sequence[JobFile]]) -> None:
    for job, (first, *others) in groups.items():
        for other in others:
            where = "another job of this file" if other.spec.path == first.spec.path else first.spec.path
            reason = f'gives the id "{job}", and so does {where}; ids must differ'
            is_listed = other.is_read and other.spec.path == LIST
            other.problems.append(
                other.problem(reason, "name") if is_listed else Problem(other.spec.path, None, None, reason)
            )


def _refuse_unknown_after(groups: Mapping[JobId, Sequence[JobFile]]) -> None:
    names = Names(groups)
    for draft in _read(groups):
        for after in draft.spec.after:
            if after.job not in groups:
                reason = f'no job "{after.job}"{nearest(after.job, names)}'
                draft.problems.append(draft.problem(reason, "after"))


def _refuse_cycles(groups: Mapping[JobId, Sequence[JobFile]]) -> None:
    found = {draft.spec.id: draft for draft in _read(groups)}
    follows = {job: [after.job for after in draft.spec.after] for job, draft in found.items()}
    refused: set[JobId] = set()
    for cycle in find_cycles({job: followed for job, followed in follows.items() if followed}):
        reason = f"these jobs wait for each other: {_chain(cycle, ' after ')}"
        for draft in (found[job] for job in cycle if job not in refused):
            draft.problems.append(draft.problem(reason, "after"))
        refused.update(cycle)


def _refuse_dependencies(groups: Mapping[JobId, Sequence[JobFile]]) -> None:
    """Refuse jobs whose alerts depend on each other: nobody would be notified of them."""
    found = {draft.spec.id: draft for draft in _read(groups)}
    depends = {
        job: [JobId(subject.removeprefix(JOB)) for subject in draft.spec.alerts.depends_on]
        for job, draft in found.items()
        if draft.spec.alerts.depends_on
    }
    for cycle in find_cycles(depends):
        links = zip(cycle, [*cycle[1:], cycle[0]], strict=True)
        if all(parent in {each.job for each in found[job].spec.after} for job, parent in links):
            continue  # they wait for each other, which is said already
        reason = f"nobody would be notified of these: {_chain(cycle, ' depends on ')}"
        for draft in (found[job] for job in cycle):
            own = draft.problem_below(reason, ALERTS, DEPENDS_ON)
            draft.problems.append(own or draft.problem(reason, "after" if draft.spec.after else ALERTS))


def _chain(cycle: Sequence[JobId], link: str) -> str:
    shown = cycle if len(cycle) <= _SHOWN else [*cycle[:_SHOWN], "…"]
    return link.join([*shown, cycle[0]])


def _warn_of_unknown_parents(groups: Mapping[JobId, Sequence[JobFile]], settings: AlertSettings, notes: Notes) -> None:
    """Warn of unknown jobs that alerts depend on; the ones that all jobs depend on are named once."""
    names = Names(groups)
    for subject in settings.policy.depends_on:
        name = subject.removeprefix(JOB)
        if job_id(name) not in groups:
            notes.warnings.append(settings.table.problem(f'no job "{name}"{nearest(name, names)}', DEPENDS_ON))
    for draft in _read(groups):
        known = {f"{JOB}{after.job}" for after in draft.spec.after}
        for subject in draft.spec.alerts.depends_on:
            name = subject.removeprefix(JOB)
            if name in groups or subject in known:
                continue
            problem = draft.problem_below(f'no job "{name}"{nearest(name, names)}', ALERTS, DEPENDS_ON)
            notes.warnings.extend([problem] if problem else [])


def _read(groups: Mapping[JobId, Sequence[JobFile]]) -> Iterator[JobFile]:
    return (draft for group in groups.values() for draft in group if draft.is_read)


def _warn_of_unused(overrides: Mapping[JobId, TomlTable], groups: Mapping[JobId, object], notes: Notes) -> None:
    names = Names(groups)
    for job, table in overrides.items():
        if job not in groups:
            notes.warnings.append(table.problem(f'no job "{job}"{nearest(job, names)}'))


def _result(drafts: Sequence[JobFile], groups: Mapping[JobId, Sequence[JobFile]], notes: Notes) -> Scan:
    problems = {job: [problem for each in group for problem in each.problems] for job, group in groups.items()}
    unsure = {problem.file: [problem] for problem in notes.refused}
    for each in drafts:
        # A file that is wrong may have had another name a moment ago; in jobs.toml, only a job without a name may.
        if each.problems and (each.spec.path != LIST or not each.spec.id):
            unsure.setdefault(each.spec.path, []).extend(each.problems)
    every = [*notes.problems, *notes.refused, *(problem for each in drafts for problem in each.problems)]
    broken = [each for each in drafts if each.problems or problems.get(each.spec.id)]
    warnings = [*notes.warnings, *(warning for each in drafts for warning in each.warnings)]
    return Scan(
        jobs={job: group[0] for job, group in groups.items() if group[0].is_read and not problems[job]},
        broken={job: found for job, found in problems.items() if found},
        unsure=unsure,
        problems=sorted(every, key=Problem.place),
        warnings=[replace(warning, is_warning=True) for warning in warnings],
        broken_lua=[source for each in broken for source in each.lua],
        broken_specs=[each.spec for each in broken if each.is_read],
    )


def _digest(*parts: bytes) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        digest.update(b"%d:" % len(part) + part)
    return digest.hexdigest()


def find_cycles(follows: Mapping[JobId, Sequence[JobId]]) -> list[list[JobId]]:
    """Return cycles, each in order: as many as it takes that without their jobs none is left.

    A walk along the links, with a stack of its own because a chain may be thousands of jobs long.  A link between two
    jobs that are in cycles already adds none: jobs that all name each other would be in millions.
    """
    cycles: list[list[JobId]] = []
    found: set[JobId] = set()
    done: set[JobId] = set()
    for start in follows:
        trail: dict[JobId, Iterator[JobId]] = {} if start in done else {start: iter(follows[start])}
        while trail:
            here = next(reversed(trail))
            following = next(trail[here], None)
            if following is None:
                done.add(here)
                del trail[here]
            elif following in trail:
                if here not in found or following not in found:
                    way = list(trail)
                    cycles.append(way[way.index(following) :])
                    found.update(cycles[-1])
            elif following not in done:
                trail[following] = iter(follows.get(following, ()))
    return cycles
