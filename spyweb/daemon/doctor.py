"""Examine a project and its machine.  Each check works by itself, whatever else is broken, and changes nothing."""

from __future__ import annotations

import asyncio
import os
import platform
import resource
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum
from importlib import metadata
from pathlib import Path
from statistics import median

from msgspec import Struct
from packaging.requirements import Requirement

from spyweb import __version__, descriptors
from spyweb.cli.client import find_daemon
from spyweb.cli.offline import OfflineProject
from spyweb.clock import Clock, is_set_by_ntp
from spyweb.daemon.check import find_channel_problems, find_readable_secrets
from spyweb.daemon.world import engine_info, find_broken_limits
from spyweb.errors import Problem, SpywebError
from spyweb.lua.pool import open_pool
from spyweb.lua.supervisor import DESCRIPTORS_EACH, SHARE
from spyweb.model import Isolation
from spyweb.ops.network.certificate import days_left
from spyweb.settings.load import examine_settings
from spyweb.settings.sections import FILE, USER_DB, Settings
from spyweb.settings.units import MINUTE_MS, format_duration
from spyweb.store.access import no_access
from spyweb.store.sqlite.damage import find_damage, size_of
from spyweb.subjects.health.remedies import REMEDIES, WORKERS
from spyweb.subjects.health.views import Health, is_missing
from spyweb.words import counted, round_size

LITTLE_BYTES, FULL_BYTES = 1 << 30, 100 << 20  # free on the disk of data/: a warning, an error
FEW_FILES = 1_000  # that the disk can still hold
SYNCS, SLOW_SYNC_S = 5, 0.1
FEW_DAYS = 14  # of a certificate
SHOWN = 5  # problems of one kind


class Status(StrEnum):
    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


OK, WARNING, ERROR = Status.OK, Status.WARNING, Status.ERROR


class Finding(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An answer of one check: a fact, or a problem with its remedy."""

    status: Status
    part: str
    text: str
    code: str = ""  # of a problem: its entry in docs/operations.md
    remedy: str = ""


class Patient(Struct, frozen=True, kw_only=True):
    """A project as far as it can be read: defaults stand in for wrong settings."""

    settings: Settings
    problems: Sequence[Problem]
    clock: Clock


def examine(root: Path, clock: Clock, checked: Callable[[], object]) -> Iterator[Finding]:
    """Yield what is found, and call `checked` after each check: that of a large database takes long."""
    settings, problems = examine_settings(root, environ=os.environ, flags={})
    patient = Patient(settings=settings, problems=problems, clock=clock)
    for part, check in CHECKS.items():
        try:
            yield from check(patient)
        except Exception as error:  # noqa: BLE001 - the other checks still help
            yield Finding(status=WARNING, part=part, text=f"this could not be checked: {error!r}")
        checked()


def finding(status: Status, part: str, text: str, code: str = "") -> Finding:
    """Return what was found, a problem with the remedy for its code; that of a part has its name."""
    code = "" if status is OK else code or part
    return Finding(status=status, part=part, text=text, code=code, remedy=REMEDIES[code] if code else "")


def of_problems(part: str, problems: Iterable[Problem], otherwise: str) -> Iterator[Finding]:
    found = sorted(problems, key=lambda problem: problem.is_warning)
    for problem in found[:SHOWN]:
        yield finding(WARNING if problem.is_warning else ERROR, part, str(problem))
    if len(found) > SHOWN:
        yield finding(WARNING, part, f"and {len(found) - SHOWN} more")
    if not found:
        yield finding(OK, part, otherwise)


def _libraries(_patient: Patient) -> Iterator[Finding]:
    running = f"{__version__} on Python {platform.python_version()}, {platform.system()} {platform.release()}"
    yield finding(OK, "spyweb", running)
    needed = [Requirement(line) for line in metadata.requires("spyweb") or ()]
    needed = [each for each in needed if each.marker is None or each.marker.evaluate({"extra": ""})]
    problems = list(filter(None, map(why_unfit, needed)))
    yield from (finding(ERROR, "libraries", problem) for problem in problems)
    if not problems:
        yield finding(OK, "libraries", f"{len(needed)}, each of a version that fits")


def why_unfit(needed: Requirement) -> str:
    try:
        version = metadata.version(needed.name)
    except metadata.PackageNotFoundError:
        return f"{needed.name} is missing"
    fits = needed.specifier.contains(version, prereleases=True)
    return "" if fits else f"{needed.name} {version} is installed, but {needed.specifier} is needed"


def _settings(patient: Patient) -> Iterator[Finding]:
    root = patient.settings.root
    where = str(root / FILE) if (root / FILE).exists() else f"the defaults: there is no {FILE} in {root}"
    doubts = [*find_readable_secrets(root), *find_broken_limits(patient.settings.exec)]
    yield from of_problems("settings", [*patient.problems, *doubts], where)


def _jobs(patient: Patient) -> Iterator[Finding]:
    scanned = OfflineProject(patient.settings, patient.clock).scanned
    yield from of_problems("jobs", scanned.problems, counted(len(scanned.jobs), "job"))


def _daemon(patient: Patient) -> Iterator[Finding]:
    try:
        daemon = find_daemon(patient.settings.daemon.data_dir)
        health = daemon.ask("GET", "/api/health", Health) if daemon else None
    except SpywebError as error:
        yield finding(ERROR, "daemon", str(error))
        return
    if health is None:
        yield finding(WARNING, "daemon", "none runs here")
        return
    for each in health.advice:
        yield finding(WARNING if each.text in health.warnings else ERROR, "daemon", each.text, each.code)
    up_ms = int(health.uptime_s) * 1000
    up = format_duration(up_ms // MINUTE_MS * MINUTE_MS or up_ms)
    yield finding(OK, "daemon", f"pid {health.pid}, up for {up}")


def _access(patient: Patient) -> Iterator[Finding]:
    folder = patient.settings.daemon.data_dir
    if error := no_access(folder):
        yield finding(ERROR, "access", str(error), "owner")
    elif not folder.exists():
        yield finding(OK, "access", f"{folder} is made at the first start")
    elif folder.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        yield finding(WARNING, "access", f"others on this machine may read {folder}")
    else:
        yield finding(OK, "access", f"{folder} is this user's alone")


def _disk(patient: Patient) -> Iterator[Finding]:
    data_dir = patient.settings.daemon.data_dir
    folder = next(place for place in (data_dir, *data_dir.parents) if place.is_dir())
    free, files = shutil.disk_usage(folder).free, os.statvfs(folder)
    text = f"{round_size(free)} are free"
    if files.f_files and files.f_favail < FEW_FILES:
        yield finding(ERROR, "disk", f"{text}, but only {files.f_favail} files more fit", "space")
    else:
        status = ERROR if free < FULL_BYTES else WARNING if free < LITTLE_BYTES else OK
        yield finding(status, "disk", text, "space")
    if folder == data_dir and os.access(folder, os.W_OK):
        took_s = median(_time_syncs(folder, patient.clock))
        told = f"a write reaches it in {took_s * 1000:.1f} ms"
        yield finding(WARNING if took_s > SLOW_SYNC_S else OK, "disk", told, "slow disk")


def _time_syncs(folder: Path, clock: Clock) -> Iterator[float]:
    with tempfile.TemporaryFile(dir=folder) as file:
        for _ in range(SYNCS):
            began = clock.monotonic()
            os.pwrite(file.fileno(), bytes(4096), 0)
            os.fsync(file.fileno())
            yield clock.monotonic() - began


def _clock(_patient: Patient) -> Iterator[Finding]:
    is_set = is_set_by_ntp()
    texts = {None: "this system does not tell whether NTP sets it", True: "it is set by NTP"}
    yield finding(WARNING if is_set is False else OK, "clock", texts.get(is_set, "nothing sets it by NTP"))


def _limits(patient: Patient) -> Iterator[Finding]:
    descriptors.raise_limit()  # as the daemon does
    specs = OfflineProject(patient.settings, patient.clock).specs
    own, room = sum(spec.isolation is Isolation.PROCESS for spec in specs), descriptors.share(SHARE, DESCRIPTORS_EACH)
    text = f"{descriptors.allowed():,} file descriptors: {room:,} jobs at once may have a process of their own"
    is_short = own > room
    yield finding(WARNING if is_short else OK, "limits", text + f", and {own:,} want one" * is_short, "descriptors")
    processes, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    needed = min(own, room) + patient.settings.daemon.workers + 2 * patient.settings.exec.at_once
    if os.geteuid() and processes != resource.RLIM_INFINITY and processes < needed:
        yield finding(WARNING, "limits", f"{processes} processes of this user, and {needed} may be needed", WORKERS)


def _workers(patient: Patient) -> Iterator[Finding]:
    """Start a worker, as the daemon does, with the sandbox that this machine allows."""

    async def start() -> Sequence[str]:
        async with open_pool(clock=patient.clock, workers=1, init=engine_info(patient.settings, None)) as pool:
            return pool.stats().rights

    try:
        rights = asyncio.run(start())
    except SpywebError as error:
        yield finding(ERROR, "workers", str(error))
        return
    yield finding(OK, "workers", "one starts")
    missing = [right for right in rights if is_missing(right)]
    yield from (finding(WARNING, "sandbox", right) for right in missing)
    if not missing:
        yield finding(OK, "sandbox", ", ".join(rights))


def _database(patient: Patient) -> Iterator[Finding]:
    settings = patient.settings
    if settings.store.is_memory:
        yield finding(OK, "database", "in memory: it ends with the daemon")
        return
    files = [settings.store.path] if settings.store.is_file else []
    for path in filter(size_of, [*files, settings.daemon.data_dir / USER_DB]):
        damage = find_damage(path)
        told = damage or f"{round_size(size_of(path))}, no page is damaged"
        yield finding(ERROR if damage else OK, "database", f"{path.name}: {told}")
    offline = OfflineProject(settings, patient.clock)
    try:
        backlog = offline.read(lambda store: store.outbox.backlog(), None)
    except SpywebError as error:
        yield finding(ERROR, "database", str(error))
        return
    if backlog is None:
        yield finding(OK, "database", "it is made at the first start")
        return
    if settings.store.is_postgres:
        yield finding(OK, "database", "PostgreSQL answers")
    if backlog.dead:
        dead = f"{counted(backlog.dead, 'message')} never arrived: `spyweb outbox` lists them"
        yield finding(WARNING, "outbox", dead)
    else:
        yield finding(OK, "outbox", f"{counted(backlog.waiting, 'message waits', 'messages wait')}")


def _channels(patient: Patient) -> Iterator[Finding]:
    problems = asyncio.run(find_channel_problems(patient.settings))
    yield from of_problems("channels", problems, counted(len(patient.settings.alerts.channels), "notification channel"))


def _certificate(patient: Patient) -> Iterator[Finding]:
    path = patient.settings.server.tls_cert
    if not path:
        return
    try:
        days = days_left((patient.settings.root / path).read_bytes(), patient.clock.now_ms())
    except (OSError, ValueError) as error:
        yield finding(ERROR, "certificate", f"{path}: {error}")
        return
    text = f"{path}: {counted(days, 'day')} left" if days >= 0 else f"{path}: it has expired"
    yield finding(ERROR if days < 0 else WARNING if days < FEW_DAYS else OK, "certificate", text)


CHECKS: dict[str, Callable[[Patient], Iterator[Finding]]] = {
    "libraries": _libraries,
    "settings": _settings,
    "jobs": _jobs,
    "daemon": _daemon,
    "access": _access,
    "disk": _disk,
    "clock": _clock,
    "limits": _limits,
    "workers": _workers,
    "database": _database,
    "channels": _channels,
    "certificate": _certificate,
}
