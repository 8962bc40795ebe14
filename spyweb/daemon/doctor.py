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
from importlib import metadata
from pathlib import Path
from statistics import median
from typing import Literal

from msgspec import Struct
from packaging.requirements import Requirement

from spyweb import __version__, descriptors
from spyweb.cli.client import find_daemon
from spyweb.cli.offline import OfflineProject
from spyweb.clock import Clock, is_set_by_ntp
from spyweb.daemon.check import find_channel_problems, find_readable_secrets, find_wrong_times
from spyweb.daemon.world import engine_info, find_broken_limits
from spyweb.errors import Problem, SpywebError
from spyweb.lua.pool import open_pool
from spyweb.lua.supervisor import DESCRIPTORS_EACH, SHARE
from spyweb.model import Isolation
from spyweb.ops.network.certificate import days_left
from spyweb.settings.load import examine_settings
from spyweb.settings.sections import FILE, USER_DB
from spyweb.settings.units import MINUTE_MS, format_duration
from spyweb.store.access import no_access
from spyweb.store.sqlite.damage import find_damage, size_of
from spyweb.subjects.health.remedies import POSTGRES, REMEDIES, WORKERS
from spyweb.subjects.health.views import Health, is_missing
from spyweb.words import counted, round_size

LITTLE_BYTES, FULL_BYTES = 1 << 30, 100 << 20  # free on the disk of data/: a warning, an error
FEW_FILES = 1_000  # that the disk can still hold
SYNCS, SLOW_SYNC_S = 5, 0.1
FEW_DAYS = 14  # of a certificate
SHOWN = 5  # problems of one kind


Status = Literal["ok", "warning", "error"]


class Finding(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An answer of one check: a fact, or a problem with its remedy."""

    status: Status
    part: str
    text: str
    code: str = ""  # of a problem: its entry in docs/operations.md
    remedy: str = ""


def examine(root: Path, clock: Clock, checked: Callable[[], object]) -> Iterator[Finding]:
    """Yield what is found, and call `checked` after each check: that of a large database takes long."""
    settings, _ = examine_settings(root, environ=os.environ, flags={})  # defaults stand in for wrong ones
    project = OfflineProject(settings, clock)
    for check in CHECKS:
        try:
            yield from check(project)
        except Exception as error:  # noqa: BLE001 - the other checks still help
            part, text = check.__name__.removeprefix("_"), f"this could not be checked: {error!r}"
            yield Finding(status="warning", part=part, text=text)
        checked()


def finding(status: Status, part: str, text: str, code: str = "") -> Finding:
    """Return what was found, a problem with the remedy for its code; that of a part has its name."""
    code = "" if status == "ok" else code or part
    return Finding(status=status, part=part, text=text, code=code, remedy=REMEDIES[code] if code else "")


def of_problems(part: str, problems: Iterable[Problem], otherwise: str) -> Iterator[Finding]:
    found = sorted(problems, key=lambda problem: problem.is_warning)
    for problem in found[:SHOWN]:
        yield finding("warning" if problem.is_warning else "error", part, str(problem))
    if len(found) > SHOWN:
        yield finding("warning", part, f"and {len(found) - SHOWN} more")
    if not found:
        yield finding("ok", part, otherwise)


def _libraries(_project: OfflineProject) -> Iterator[Finding]:
    running = f"{__version__} on Python {platform.python_version()}, {platform.system()} {platform.release()}"
    yield finding("ok", "spyweb", running)
    needed = [Requirement(line) for line in metadata.requires("spyweb") or ()]
    needed = [each for each in needed if each.marker is None or each.marker.evaluate({"extra": ""})]
    problems = list(filter(None, map(why_unfit, needed)))
    yield from (finding("error", "libraries", problem) for problem in problems)
    if not problems:
        yield finding("ok", "libraries", f"{len(needed)}, each of a version that fits")


def why_unfit(needed: Requirement) -> str:
    try:
        version = metadata.version(needed.name)
    except metadata.PackageNotFoundError:
        return f"{needed.name} is missing"
    fits = needed.specifier.contains(version, prereleases=True)
    return "" if fits else f"{needed.name} {version} is installed, but {needed.specifier} is needed"


def _settings(project: OfflineProject) -> Iterator[Finding]:
    root = project.settings.root
    _, problems = examine_settings(root, environ=os.environ, flags={})
    where = str(root / FILE) if (root / FILE).exists() else f"the defaults: there is no {FILE} in {root}"
    found = [*problems, *find_wrong_times(project.settings), *find_broken_limits(project.settings.exec)]
    yield from of_problems("settings", [*found, *find_readable_secrets(root)], where)


def _jobs(project: OfflineProject) -> Iterator[Finding]:
    yield from of_problems("jobs", project.scanned.problems, counted(len(project.specs), "job"))


def _daemon(project: OfflineProject) -> Iterator[Finding]:
    try:
        daemon = find_daemon(project.settings.daemon.data_dir)
        health = daemon.ask("GET", "/api/health", Health) if daemon else None
    except SpywebError as error:
        yield finding("error", "daemon", str(error))
        return
    if health is None:
        yield finding("warning", "daemon", "none runs here")
        return
    for each in health.advice:
        yield finding("warning" if each.text in health.warnings else "error", "daemon", each.text, each.code)
    up_ms = int(health.uptime_s) * 1000
    up = format_duration(up_ms // MINUTE_MS * MINUTE_MS or up_ms)
    yield finding("ok", "daemon", f"pid {health.pid}, up for {up}")


def _access(project: OfflineProject) -> Iterator[Finding]:
    folder = project.settings.daemon.data_dir
    if error := no_access(folder):
        yield finding("error", "access", str(error), "owner")
    elif not folder.exists():
        yield finding("ok", "access", f"{folder} is made at the first start")
    elif folder.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        yield finding("warning", "access", f"others on this machine may read {folder}")
    else:
        yield finding("ok", "access", f"{folder} is this user's alone")


def _disk(project: OfflineProject) -> Iterator[Finding]:
    data_dir = project.settings.daemon.data_dir
    folder = next(place for place in (data_dir, *data_dir.parents) if place.is_dir())
    free, files = shutil.disk_usage(folder).free, os.statvfs(folder)
    text = f"{round_size(free)} are free"
    if files.f_files and files.f_favail < FEW_FILES:
        yield finding("error", "disk", f"{text}, but only {files.f_favail} files more fit", "space")
    else:
        status: Status = "error" if free < FULL_BYTES else "warning" if free < LITTLE_BYTES else "ok"
        yield finding(status, "disk", text, "space")
    if folder == data_dir and os.access(folder, os.W_OK):
        took_s = median(_time_syncs(folder, project.clock))
        told = f"a write reaches it in {took_s * 1000:.1f} ms"
        yield finding("warning" if took_s > SLOW_SYNC_S else "ok", "disk", told, "slow disk")


def _time_syncs(folder: Path, clock: Clock) -> Iterator[float]:
    with tempfile.TemporaryFile(dir=folder) as file:
        for _ in range(SYNCS):
            began = clock.monotonic()
            os.pwrite(file.fileno(), bytes(4096), 0)
            os.fsync(file.fileno())
            yield clock.monotonic() - began


def _clock(_project: OfflineProject) -> Iterator[Finding]:
    is_set = is_set_by_ntp()
    texts = {None: "this system does not tell whether NTP sets it", True: "it is set by NTP"}
    yield finding("warning" if is_set is False else "ok", "clock", texts.get(is_set, "nothing sets it by NTP"))


def _limits(project: OfflineProject) -> Iterator[Finding]:
    descriptors.raise_limit()  # as the daemon does
    own = sum(spec.isolation is Isolation.PROCESS for spec in project.specs)
    room = descriptors.share(SHARE, DESCRIPTORS_EACH)
    text = f"{descriptors.allowed():,} file descriptors: {room:,} jobs at once may have a process of their own"
    is_short = own > room
    yield finding("warning" if is_short else "ok", "limits", text + f", and {own:,} want one" * is_short, "descriptors")
    processes, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    needed = min(own, room) + project.settings.daemon.workers + 2 * project.settings.exec.at_once
    if os.geteuid() and processes != resource.RLIM_INFINITY and processes < needed:
        yield finding("warning", "limits", f"{processes} processes of this user, and {needed} may be needed", WORKERS)


def _workers(project: OfflineProject) -> Iterator[Finding]:
    """Start a worker, as the daemon does, with the sandbox that this machine allows."""

    async def start() -> Sequence[str]:
        async with open_pool(clock=project.clock, workers=1, init=engine_info(project.settings, None)) as pool:
            return pool.stats().rights

    try:
        rights = asyncio.run(start())
    except SpywebError as error:
        yield finding("error", "workers", str(error))
        return
    yield finding("ok", "workers", "one starts")
    missing = [right for right in rights if is_missing(right)]
    yield from (finding("warning", "sandbox", right) for right in missing)
    if not missing:
        yield finding("ok", "sandbox", ", ".join(rights))


def _database(project: OfflineProject) -> Iterator[Finding]:
    settings = project.settings
    if settings.store.is_memory:
        yield finding("ok", "database", "in memory: it ends with the daemon")
        return
    files = [settings.store.path] if settings.store.is_file else []
    for path in filter(size_of, [*files, settings.daemon.data_dir / USER_DB]):
        damage = find_damage(path)
        told = damage or f"{round_size(size_of(path))}, no page is damaged"
        yield finding("error" if damage else "ok", "database", f"{path.name}: {told}")
    try:
        backlog = project.read(lambda store: store.outbox.backlog(), None)
    except SpywebError as error:
        yield finding("error", "database", str(error), POSTGRES if settings.store.is_postgres else "database")
        return
    if backlog is None:
        yield finding("ok", "database", "it is made at the first start")
        return
    if settings.store.is_postgres:
        yield finding("ok", "database", "PostgreSQL answers")
    if backlog.dead:
        dead = f"{counted(backlog.dead, 'message')} never arrived: `spyweb outbox` lists them"
        yield finding("warning", "outbox", dead)
    else:
        yield finding("ok", "outbox", f"{counted(backlog.waiting, 'message waits', 'messages wait')}")


def _channels(project: OfflineProject) -> Iterator[Finding]:
    problems = asyncio.run(find_channel_problems(project.settings))
    yield from of_problems("channels", problems, counted(len(project.settings.alerts.channels), "notification channel"))


def _certificate(project: OfflineProject) -> Iterator[Finding]:
    path = project.settings.server.tls_cert
    if not path:
        return
    try:
        days = days_left((project.settings.root / path).read_bytes(), project.clock.now_ms())
    except (OSError, ValueError) as error:
        yield finding("error", "certificate", f"{path}: {error}")
        return
    text = f"{path}: {counted(days, 'day')} left" if days >= 0 else f"{path}: it has expired"
    yield finding("error" if days < 0 else "warning" if days < FEW_DAYS else "ok", "certificate", text)


CHECKS: Sequence[Callable[[OfflineProject], Iterator[Finding]]] = (
    _libraries, _settings, _jobs, _daemon, _access, _disk, _clock, _limits, _workers, _database, _channels,
    _certificate,
)  # fmt: skip
