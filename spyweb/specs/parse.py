"""Parse a job's settings block and config.toml into its spec, or into everything that is wrong with it.

Precedence: `[jobs.ID]` in config.toml > the file's own block > `[defaults]` in config.toml > built-in.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import TypeVar
from zoneinfo import ZoneInfo

from msgspec import Struct, field, structs

from spyweb.checks.settings import CHECK, CheckKind, take_check
from spyweb.errors import Problem
from spyweb.incidents.policy import AlertPolicy
from spyweb.incidents.truth import JOB
from spyweb.model import (
    MIB,
    NO_HOOK,
    After,
    At,
    Backoff,
    Cron,
    Every,
    Expect,
    HookSigning,
    Isolation,
    JobHook,
    JobId,
    JobSpec,
    Misfire,
    MisfirePolicy,
    Never,
    On,
    OnHookError,
    OnStoreError,
    Outcome,
    Overlap,
    PingAddresses,
    Pings,
    RecordRule,
    Retry,
    Schedule,
    Start,
)
from spyweb.permissions.policy import Grants, policy_of
from spyweb.schedules.cron import cron_after, parse_cron
from spyweb.settings.addresses import address_template, secret_place
from spyweb.settings.alerts import take_policy
from spyweb.settings.permissions import take_grants
from spyweb.settings.reading import NOT_BLANK, TEXT, Reading, Schema, Tables, asked_of, list_of, shaped, wrong
from spyweb.settings.script_values import NO_VALUES, merge, to_text, values_table
from spyweb.settings.sections import MEMORY, SHORTEST_PERIOD_MS, DaemonSettings, ServerSettings, Settings, StoreSettings
from spyweb.settings.tables import TomlTable
from spyweb.settings.units import DAY_MS, HOUR_MS, SECOND_MS
from spyweb.settings.values import (
    boolean,
    duration,
    history_rule,
    labels,
    line,
    node_name,
    one_of,
    or_word,
    size,
    some_of,
    text,
    texts,
    timezone,
    whole,
)
from spyweb.specs.monitor_file import ADDRESSES, take_monitor
from spyweb.specs.watches import ON
from spyweb.store.model.entries import GLOBAL, job_namespace

MOST_HEADERS = 32
OF_JOB = "{job}"  # in an address of `ping_url`: the id of the job

_HEADER = re.compile(r"[a-z0-9-]+")


def _take_hook(read: Reading) -> JobHook:
    if read.has("hmac") and not read.has("secret"):
        read.refuse("signs with a secret: expected secret as well", "hmac")
    return JobHook(
        secret=read.take("secret", secret_place, ""),
        signing=read.take("hmac", one_of(HookSigning, HookSigning.PLAIN), None) or HookSigning.PLAIN,
        headers=read.take("headers", _headers, ()),
    )


@shaped(list_of(TEXT))
def _headers(value: object) -> tuple[str, ...]:
    names = tuple(name.lower() for name in texts(value))
    if len(names) > MOST_HEADERS:
        raise ValueError(f"expected at most {MOST_HEADERS}")
    for name in names:
        if not _HEADER.fullmatch(name):
            raise ValueError(f"{name[:80]!r} is no name of a header")
    return names


def _take_ping(read: Reading) -> PingAddresses:
    return PingAddresses(
        start=read.take("start", _address, None) or "",
        success=read.take("success", _address, None) or "",
        fail=read.take("fail", _address, None) or "",
    )


@shaped(NOT_BLANK)
def _address(value: object) -> str:
    """Read an address.  Raises ValueError, which tells nothing of it."""
    if not isinstance(value, str):
        raise wrong(PING.expected, value)
    if not value.strip():
        raise ValueError("can't be blank")
    address_template(value.replace(OF_JOB, "job"))
    return value.strip()


HOOK = Tables(take=_take_hook, expected='{ secret = "env:NAME", hmac = "github" }', alone=True, most=1)
PING = Tables(
    take=_take_ping,
    expected="an address, or { start = …, success = …, fail = … }",
    instead=shaped(NOT_BLANK)(lambda value: PingAddresses(base=_address(value))),
    alone=True,
    most=1,
)

SCHEDULES = ("every", "interval", "cron", "at")  # `interval` is `every` in a monitor's words
FOLDER = "jobs"
PERMISSIONS, ALERTS, DEPENDS_ON = "permissions", "alerts", "depends_on"
EXPECT, PING_URL = "expect", "ping_url"
NOT_IN_DEFAULTS = {
    PERMISSIONS: "what jobs may reach is set in [permissions]",
    ALERTS: "notifications of all jobs are set in [alerts]",
    EXPECT: "each job says itself what it expects",
    CHECK: "each job says itself what it checks",
}
OF_CHECKS = ("timeout", "values")  # a check reads its own: what [defaults] say of scripts does not count
# Settings of what runs here, which a job that only expects pings has not.
NOT_WITH_PINGS = (
    *("at", "after", "on", "jitter", "start", "cpu_limit", "memory_limit", "isolation", "overlap", "agent", "history"),
    *("node", "labels"),
    *("misfire", "misfire_grace", "misfire_limit", "values", "drift", "drift_repair", "resume", "record", PERMISSIONS),
    *("retries", "retry_delay", "retry_backoff", "retry_max_delay", "retry_jitter", "on_store_error"),
)
LONGEST_GRACE_MS = HOUR_MS  # unless it says itself
LONGEST_NAME = 200  # characters: it becomes an id, and a part of file names

RUN_OUTCOMES = {outcome.value: outcome for outcome in (Outcome.SUCCESS, Outcome.FAILED, Outcome.LOST, Outcome.STOPPED)}
ANY = "any"
_OUTCOMES = some_of(
    "an outcome",
    {name: frozenset({outcome}) for name, outcome in RUN_OUTCOMES.items()}
    | {ANY: frozenset({*RUN_OUTCOMES.values(), Outcome.SKIPPED})},
)
_NO_TABLE: Mapping[str, object] = {}
SUCCEEDED = frozenset({Outcome.SUCCESS})

Setting = TypeVar("Setting", bound=Hashable)

YEARS = range(1900, 9000)  # of `at`: as far from where the calendar ends as the longest jitter and any zone may reach
_MOMENT = "a moment such as 2026-12-24T18:00:00Z"
_PLAIN_ID = re.compile(r"[a-z0-9](?:[a-z0-9_]*[a-z0-9])?")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


NO_SETTINGS = Settings(
    root=Path(), daemon=DaemonSettings(data_dir=Path()), server=ServerSettings(), store=StoreSettings(url=MEMORY)
)

_USUAL = JobSpec(id=JobId(""), name="", path="", folder="")  # where a job says nothing

_PERIOD = duration(SHORTEST_PERIOD_MS)
_INTERVAL = shaped(_PERIOD.schema)(lambda value: Every(period_ms=_PERIOD(value)))
_EVERY = shaped({"anyOf": [{"const": "never"}, _PERIOD.schema]})(
    lambda value: Never() if value == "never" else Every(period_ms=_PERIOD(value))
)


class JobPlace(Struct, frozen=True, kw_only=True):
    """A job's file and folder, relative to the project root, and its name where it gives none."""

    file: str
    folder: str  # empty: it follows from the id
    name: str
    is_monitor: bool = False
    is_script: bool = False
    check: str = ""  # the kind of a check, as it is written
    hooks: tuple[str, ...] = ()  # a monitor's Lua files, in the order in which they are executed


class JobFile(Struct, frozen=True, kw_only=True):
    """A job as its file and the settings describe it.  With problems, the spec is only a guess at its id."""

    spec: JobSpec
    problems: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)
    sources: tuple[TomlTable, ...] = ()  # of its settings
    # Path and source of its Lua files, fit for a loader: no byte order mark, a `#!` line made a comment.
    lua: tuple[tuple[str, bytes], ...] = ()
    digest: str = ""  # of all its code: a change of the settings alone leaves it as it is
    is_read: bool = True  # not where its settings could not even be read

    @property
    def has_hooks(self) -> bool:
        """Return whether this is a monitor with Lua; one without needs no VM."""
        return self.spec.monitor is not None and bool(self.lua)

    def problem(self, reason: str, key: str) -> Problem:
        """Return a problem with a key, blamed on the strongest source that has it."""
        source = next((source for source in self.sources if key in source.values), None)
        return source.problem(reason, key) if source else Problem(self.spec.path, None, key, reason)

    def problem_below(self, reason: str, key: str, inner: str) -> Problem | None:
        """Return a problem with a key of a table, blamed on the strongest source that has it; None where none has."""
        having = (source for source in self.sources if inner in source.table(key).values)
        source = next(having, None)
        return source.problem(reason, key, inner) if source else None


def expects_pings(table: TomlTable) -> bool:
    """Return whether a job runs elsewhere; in a check `expect` is a list of conditions."""
    return EXPECT in table.values and CHECK not in table.values and not isinstance(table.values[EXPECT], list)


def job_id(name: str) -> JobId:
    """Return the id of a name: lower case, `_` for other characters, no `_` at the ends; or ""."""
    if _PLAIN_ID.fullmatch(name):
        return JobId(name)
    return JobId("".join(char.lower() if char.isalnum() else "_" for char in name).strip("_"))


def parse_job(block: TomlTable, place: JobPlace, *, override: TomlTable, settings: Settings) -> JobFile:
    """Parse a job's own settings; whether the jobs in `after` exist is checked by discover.py."""
    defaults = settings.defaults
    problems: list[Problem] = []
    warnings: list[Problem] = []
    sources = tuple(_sources(override, block, defaults, problems, place))
    reading = Reading(sources, problems, warnings)
    spec = _spec(reading, place, settings)
    reading.finish(*([CHECK] if place.is_monitor else []))
    if place.check and CHECK in override.values:
        problems.append(override.problem("a check can't be set here, only in the job's own file", CHECK))
    if spec.ping is not None:
        is_own = PING_URL in block.values and PING_URL not in override.values
        ping = replace(spec.ping, is_own=is_own)
        spec = structs.replace(spec, ping=ping)
        problems.extend(_refused_pings(ping, override, block, defaults))
    if isinstance(spec.schedule, Pings):
        problems.extend(_refused_with_pings(place, (override, block)))
        # What [defaults] say of jobs that run here does not count.
        spec = structs.replace(spec, overlap=Overlap.ALLOW, retry=Retry(), jitter_ms=0, drift_ms=None, resume=False)
        spec = structs.replace(spec, node="", labels=())
    if place.is_monitor:
        tables = [table for table in (override, block) if "record" in table.values]
        problems.extend(
            table.problem("only what scripts do is recorded, not what monitors do", "record") for table in tables
        )
    problems.extend(_refused_changes(spec, reading))
    if not spec.id and spec.name:
        problems.append(block.problem(f"the name {spec.name!r} holds no letter or digit, so it gives no id", "name"))
    return JobFile(spec=spec, problems=problems, warnings=warnings, sources=sources)


def _refused_with_pings(place: JobPlace, tables: Sequence[TomlTable]) -> Iterator[Problem]:
    """Yield the problems of a job that expects pings: none of its code runs here."""
    if place.is_script or place.is_monitor:
        reason = "a job that expects pings runs elsewhere: here it has no file"
        teller = next((table for table in tables if expects_pings(table)), tables[-1])
        yield teller.problem(reason, EXPECT)
    for table in tables:
        for key in NOT_WITH_PINGS:
            if key in table.values:
                yield table.problem("a job that expects pings runs elsewhere: this has no meaning", key)


def _refused_pings(
    ping: PingAddresses, override: TomlTable, block: TomlTable, defaults: TomlTable
) -> Iterator[Problem]:
    """Yield what may not stand in `ping_url` where it stands."""
    addresses = [ping.base, ping.start, ping.success, ping.fail]
    if ping.is_own and any("${" in address for address in addresses):
        reason = "variables of the environment are for config.toml: there it may be [jobs.ID] ping_url"
        yield block.problem(reason, PING_URL)
    is_of_all = PING_URL not in override.values and PING_URL not in block.values
    if is_of_all and any(address and OF_JOB not in address for address in addresses):
        yield defaults.problem(f"one address for all jobs needs {OF_JOB} in it, their id", PING_URL)


@lru_cache(maxsize=16)
def job_keys(*, is_monitor: bool = False, check: str = "") -> Mapping[str, Schema]:
    """Return the JSON schema of every key that a job takes."""
    return _asked(is_monitor=is_monitor, check=check).schema()


def required_keys(check: str) -> Sequence[str]:
    """Return the keys that a check of this kind needs."""
    return _asked(is_monitor=False, check=check).required


def _asked(*, is_monitor: bool, check: str) -> Reading:
    place = JobPlace(file="", folder="", name="", is_monitor=is_monitor, check=check)
    return asked_of(lambda reading: _spec(reading, place, NO_SETTINGS), sources=2)


def usable_defaults(settings: Settings) -> tuple[TomlTable, list[Problem]]:
    """Return `[defaults]` without the keys that are wrong, and their problems: they must not stop every job."""
    defaults = settings.defaults
    place = JobPlace(file=defaults.file, folder="", name="defaults")
    nothing = TomlTable(file=defaults.file)
    problems = parse_job(nothing, place, override=nothing, settings=settings).problems
    depth = len(defaults.path)
    bad = {(problem.key or "").split(".")[depth].partition("[")[0] for problem in problems}
    good = {key: value for key, value in defaults.values.items() if key not in bad}
    return defaults.with_values(good), problems


def _sources(
    override: TomlTable, block: TomlTable, defaults: TomlTable, problems: list[Problem], place: JobPlace
) -> Iterator[TomlTable]:
    """Yield the sources of settings, the strongest first.

    A schedule, or an address, hides those of weaker sources, whichever key it uses; a job that follows another, or
    expects pings, has no schedule by default.
    """
    own = (override, block)
    follows = any("after" in table.values or "on" in table.values or expects_pings(table) for table in own)
    hidden: set[str] = set()
    for table in (override, block, defaults):
        if follows and table is defaults:
            hidden.update(SCHEDULES)
        given = [key for key in SCHEDULES if key in table.values]
        if len(given) > 1:
            problems.append(table.problem(f"a job has one schedule; this one has {' and '.join(given)}", given[1]))
        is_own = table is block
        if not is_own and "name" in table.values:
            problems.append(table.problem("a name can't be set here, only in the job's own file", "name"))
        if table is defaults:
            misplaced = NOT_IN_DEFAULTS.keys() & table.values.keys()
            problems.extend(table.problem(NOT_IN_DEFAULTS[key], key) for key in misplaced)
            hidden.update([*misplaced, *(OF_CHECKS if place.check else ())])
        hides = hidden if is_own else hidden | {"name"}
        kept = {key: value for key, value in table.values.items() if key not in hides}
        forgiving = place.is_monitor and is_own
        is_whole = len(kept) == len(table.values) and not forgiving
        yield table if is_whole else table.with_values(kept, forgiving=forgiving)
        for group in (SCHEDULES, ADDRESSES):
            if not table.values.keys().isdisjoint(group):
                hidden.update(group)


def _spec(read: Reading, place: JobPlace, settings: Settings) -> JobSpec:
    name = read.take("name", line(LONGEST_NAME), place.name)
    if place.is_monitor and not read.has("name"):
        read.refuse("is required", "name")
    after = read.tables("after", _AFTER, _USUAL.after)
    on: tuple[On, ...] = read.tables("on", ON, _USUAL.on)
    if place.is_monitor and any(each.when for each in on):
        read.refuse("'when' is for script jobs: let before_fetch look at ctx.trigger, and return nil", "on")
    on_hook_error = read.take("on_hook_error", one_of(OnHookError), OnHookError.SKIP)  # a script has no hooks
    job = job_id(name)
    override, own, *_ = read.apart(PERMISSIONS)  # config.toml decides, and the job's own must permit it as well
    granted, narrowed = take_grants(override, settings.permissions), take_grants(own, Grants())
    if place.check and place.check != CheckKind.COMMAND:
        granted = structs.replace(granted, exec=())  # it runs no program, so it needs no separate process either
    policy = policy_of(granted, None if own.is_empty else narrowed)
    isolation = read.take("isolation", one_of(Isolation), _USUAL.isolation)
    schedule = _schedule(read, settings.daemon, place, follows=bool(after or on))
    values, limit_ms = take_check(read, place.check, is_named=bool(place.name)) if place.check else ("", 0)
    node, wanted = read.take("node", node_name, ""), _shared(read.take("labels", labels, _USUAL.labels))
    if node and wanted:
        read.refuse("a job is for one node or for labels, not for both", "labels")
    usual_timeout_ms = HOUR_MS if isinstance(schedule, Pings) else _USUAL.timeout_ms
    return JobSpec(
        id=job,
        name=name,
        path=place.file,
        folder=place.folder or f"{FOLDER}/{job}",
        description=read.take("description", text, ""),
        tags=read.take("tags", texts, ()),
        enabled=read.take("enabled", boolean, True),
        schedule=_shared(schedule),
        jitter_ms=read.take("jitter", duration(), _USUAL.jitter_ms),
        start=read.take("start", one_of(Start), _USUAL.start),
        timeout_ms=limit_ms or _shared(read.take("timeout", duration(1), usual_timeout_ms)),
        cpu_limit_ms=_shared(read.take("cpu_limit", duration(1), _USUAL.cpu_limit_ms)),
        memory_limit=_shared(read.take("memory_limit", size(MIB, 65_536 * MIB), _USUAL.memory_limit)),
        isolation=Isolation.PROCESS if policy.may_exec else isolation,
        overlap=read.take("overlap", one_of(Overlap), _USUAL.overlap),
        misfire=_shared(
            Misfire(
                policy=read.take("misfire", one_of(MisfirePolicy), _USUAL.misfire.policy),
                grace_ms=read.take("misfire_grace", or_word("none", duration()), _USUAL.misfire.grace_ms),
                limit=read.take("misfire_limit", whole(1, 10_000), _USUAL.misfire.limit),
            )
        ),
        retry=_shared(
            Retry(
                retries=read.take("retries", whole(0, 1_000), _USUAL.retry.retries),
                delay_ms=read.take("retry_delay", duration(), _USUAL.retry.delay_ms),
                backoff=read.take("retry_backoff", one_of(Backoff), _USUAL.retry.backoff),
                max_delay_ms=read.take("retry_max_delay", duration(), _USUAL.retry.max_delay_ms),
                jitter=read.take("retry_jitter", boolean, _USUAL.retry.jitter),
            )
        ),
        after=after,
        on=on,
        agent=read.take("agent", line(LONGEST_NAME), _USUAL.agent),
        history=read.take("history", history_rule, None),
        on_store_error=read.take("on_store_error", one_of(OnStoreError), None),
        values=values if place.check else _take_values(read),
        check=place.check or None,
        node=node,
        labels=wanted,
        drift_ms=read.take("drift", duration(10 * SECOND_MS), None),
        drift_repair=read.take("drift_repair", boolean, False),
        resume=read.take("resume", boolean, False),
        record=read.take("record", one_of(RecordRule), _USUAL.record),
        policy=policy,
        ping=(read.tables(PING_URL, PING, None) or (None,))[0],
        hook=_shared((read.tables("hook", HOOK, None) or (NO_HOOK,))[0]),
        alerts=_shared(_alerts(read, job, after, settings)),
        monitor=take_monitor(read, on_hook_error, settings.alerts) if place.is_monitor else None,
    )


def _alerts(read: Reading, job: JobId, after: tuple[After, ...], settings: Settings) -> AlertPolicy:
    """Take the job's notification settings; the jobs that must succeed before it starts become parents too."""
    own, alerts = read.below(ALERTS), settings.alerts
    policy = take_policy(own, alerts.policy, alerts.names, settings.daemon.timezone)
    names = [each.removeprefix(JOB) for each in policy.depends_on]  # as people write them
    named, subject = [f"{JOB}{job_id(name) or name}" for name in names], f"{JOB}{job}"
    if not own.has(DEPENDS_ON) and subject in named:
        named = []  # what all jobs depend on does not depend on the others of these
    before = (f"{JOB}{each.job}" for each in after if each.outcomes == SUCCEEDED)
    parents = dict.fromkeys([*named, *before])
    parents.pop(subject, None)
    return structs.replace(policy, depends_on=tuple(parents))


def alerts_without_file(job: JobId, settings: Settings) -> AlertPolicy:
    """Return the notification settings of a job whose own file can't be read: those of config.toml alone."""
    tables = [table for name, table in settings.jobs.items() if job_id(name) == job]
    read, alerts = Reading(tables, []), settings.alerts
    return take_policy(read.below(ALERTS), alerts.policy, alerts.names, settings.daemon.timezone)


def _take_values(read: Reading) -> str:
    """Take `values`: those of each source, laid over those of weaker ones."""
    try:
        shown = read.take_all("values", values_table, _NO_TABLE)
        return to_text(merge(shown)) if shown else NO_VALUES
    except ValueError as error:
        read.refuse(str(error), "values")
        return NO_VALUES


def _refused_changes(spec: JobSpec, read: Reading) -> Iterator[Problem]:
    """Yield the changes in `on` that the job may not read: they would show it the values."""
    for on in spec.on:
        if on.namespace == GLOBAL:
            refusal = spec.policy.global_store()
        elif on.is_prefix:
            refusal = spec.policy.all_scopes()
        else:
            refusal = None if on.namespace == job_namespace(spec.id) else spec.policy.state(on.namespace, write=False)
        if refusal is not None:
            yield read.problem(refusal.text("on", spec.id), "on")


@lru_cache(maxsize=4096)
def _shared(value: Setting) -> Setting:
    """Return one object for equal values: jobs have most settings in common."""
    return value


def _schedule(read: Reading, daemon: DaemonSettings, place: JobPlace, *, follows: bool) -> Schedule:
    zone = read.take("timezone", timezone, daemon.timezone)
    every: Every | Never | None = read.take("interval", _INTERVAL, None) if place.is_monitor else None
    every = read.take("every", _EVERY, every)
    cron = read.take("cron", read_cron, None)
    moment = read.take("at", read_moment, None)
    expect = None if place.check else read.take(EXPECT, one_of(Expect), None)
    grace_ms = None if place.check else read.take("grace", duration(), None)
    if expect is not None:
        expected = Cron(expression=cron, timezone=zone) if cron is not None else every
        return _pings(read, expected, grace_ms)
    if grace_ms is not None:
        read.refuse('it is of jobs that expect pings: expect = "ping"', "grace")
    if every is not None:
        return every
    if cron is not None:
        return Cron(expression=cron, timezone=zone)
    if moment is not None:
        return At(at_ms=epoch_ms(moment, zone))
    return Never() if follows else Every(period_ms=daemon.default_interval_ms)


def _pings(read: Reading, expected: Every | Cron | Never | None, grace_ms: int | None) -> Pings:
    """Return when pings are expected."""
    if not isinstance(expected, Every | Cron):
        read.refuse("a job that expects pings needs every or cron: when they come", EXPECT)
        expected = Every(period_ms=DAY_MS)
    usual_ms = min(expected.period_ms, LONGEST_GRACE_MS) if isinstance(expected, Every) else LONGEST_GRACE_MS
    return Pings(schedule=expected, grace_ms=usual_ms if grace_ms is None else grace_ms)


@shaped(NOT_BLANK)
def read_cron(value: object) -> str:
    """Read a cron expression that is due some day."""
    expression = " ".join(text(value).split())
    _prove_due(expression)
    return expression


@lru_cache(maxsize=4096)
def _prove_due(expression: str) -> None:
    parse_cron(expression)
    if cron_after(expression, "UTC", 0) is None:
        raise ValueError(f"{expression!r} is never due: no such day")


@shaped({"type": "string", "pattern": r"^\d{4}-\d\d-\d\d."})
def read_moment(value: object) -> datetime:
    """Read a moment, with an offset or without one, in the years that calendars know."""
    if not isinstance(value, datetime | str) or (isinstance(value, str) and len(value) <= len("2026-12-24")):
        raise wrong(_MOMENT, value)
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else value
    except ValueError:
        raise wrong(_MOMENT, value) from None
    if moment.year not in YEARS:
        raise ValueError(f"must lie in the years {YEARS.start} to {YEARS.stop - 1}, not in {moment.year}")
    return moment


def epoch_ms(moment: datetime, zone: str) -> int:
    """Return a moment in milliseconds since 1970; one without an offset is local to the zone."""
    aware = moment if moment.tzinfo else moment.replace(tzinfo=ZoneInfo(zone))
    return (aware - _EPOCH) // timedelta(milliseconds=1)


def _take_after(read: Reading) -> After:
    read.require("job")
    return After(job=read.take("job", _job_named, JobId("")), outcomes=read.take("outcome", _OUTCOMES, SUCCEEDED))


@shaped(NOT_BLANK)
def _job_named(value: object) -> JobId:
    if not isinstance(value, str):
        raise wrong(_AFTER.expected, value)
    job = job_id(value)
    if not job:
        raise ValueError(f"{value[:80]!r} is no job's name")
    return job


_AFTER = Tables(
    take=_take_after,
    expected='a job\'s name, a list of names, or { job = "name", outcome = "success" }',
    instead=shaped(NOT_BLANK)(lambda value: After(job=_job_named(value))),
    alone=True,
)
