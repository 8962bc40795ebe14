"""Check every file of a project, without a daemon, and the programs and folders that its policies permit."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

from msgspec import structs

from spyweb.alerts.channel_check import check_channels
from spyweb.alerts.channels import ChannelSecrets
from spyweb.alerts.sender.helper import AlertHelper
from spyweb.clock import RealClock
from spyweb.daemon.world import engine_info, find_broken_limits
from spyweb.errors import Problem
from spyweb.extraction.extractor import open_extractor
from spyweb.logs.secrets import hide_in_url, is_secret
from spyweb.lua.pool import open_pool
from spyweb.lua.session import Code
from spyweb.model import JobId, JobSpec, PingAddresses
from spyweb.reload.proof import find_selector_problems, judge
from spyweb.runs.live import code_of
from spyweb.schedules.cron import parse_cron
from spyweb.settings.addresses import CREDENTIAL, ENV, expand, is_on_this_machine, missing_variables
from spyweb.settings.load import examine_settings, is_emptied, read_table
from spyweb.settings.sections import FILE, POSTGRES, HeartbeatSettings, Settings
from spyweb.specs.discover import Scan, scan
from spyweb.specs.server_file import SERVER, find_files
from spyweb.specs.tree import EMPTY, read_source
from spyweb.store.interchange.foreign import DATA_FILE, describe_data_file
from spyweb.testing.run import FILE as TESTS

HOMES = (Path("/home"), Path("/root"), Path("/run/user"))
STATUS = Path("/proc/self/status")
NO_ADDRESSES = PingAddresses()
BROKEN = JobId("-")  # of files whose settings are wrong too: it is uncertain which job they belong to


async def check_project(root: Path) -> list[Problem]:
    """Find every problem in every file, compile errors and warnings included."""
    settings, problems = examine_settings(root, environ=os.environ, flags={})
    found = await asyncio.to_thread(scan, root, settings)
    specs = [*(file.spec for file in found.jobs.values()), *found.broken_specs]
    channels, compiled = await asyncio.gather(find_channel_problems(settings), compile_all(settings, found, specs))
    failed = [*channels, *compiled]
    async with open_extractor(RealClock()) as selectors:
        for spec in specs:
            failed += await find_selector_problems(selectors.find_selector_problem, spec)
    uncompiled = {problem.file for problem in compiled if not problem.is_warning}
    promises = await asyncio.to_thread(find_broken_promises, specs, os.environ, settings.daemon.data_dir)
    doubts = [
        *promises,
        *find_broken_limits(settings.exec),
        *find_missing_variables(specs, os.environ),
        *find_doubtful_heartbeat(settings.heartbeat, os.environ),
        *find_readable_secrets(root),
        *find_idle_cluster(settings),
        *find_wrong_times(settings),
        *(warning for warning in found.warnings if warning.file not in uncompiled),
    ]
    if is_emptied(root):
        doubts.append(Problem(FILE, None, None, EMPTY, is_warning=True))
    if what := describe_data_file(root / DATA_FILE):
        doubts.append(Problem(DATA_FILE, None, None, what, is_warning=True))
    every = {*problems, *found.problems, *failed, *doubts}
    return sorted(every, key=lambda problem: (*problem.place(), problem.key or "", problem.reason))


def find_doubtful_heartbeat(heartbeat: HeartbeatSettings, environ: Mapping[str, str]) -> list[Problem]:
    """Warn about a heartbeat to this same machine, and about an incomplete address."""
    if not heartbeat.url:
        return []
    try:
        if not is_on_this_machine(expand(heartbeat.url, environ)):
            return []
        reason = "the address is on this machine, so nobody notices when the machine is down"
    except ValueError as error:
        reason = f"{error}, in the environment of this check"
    return [Problem(FILE, None, "heartbeat.url", reason, is_warning=True)]


def find_idle_cluster(settings: Settings) -> list[Problem]:
    """Warn about the settings of a node whose store no other can reach."""
    table = read_table(settings.root, [])
    if settings.store.is_postgres or not table.table("cluster").values:
        return []
    problem = table.problem(f'it has no effect without [store] url = "{POSTGRES[0]}USER@HOST/DATABASE"', "cluster")
    return [replace(problem, is_warning=True)]


def find_wrong_times(settings: Settings) -> list[Problem]:
    """Find what is no schedule in config.toml, whose reader knows nothing of schedules."""
    try:
        if settings.backup.cron:
            parse_cron(settings.backup.cron)
    except ValueError as error:
        return [read_table(settings.root, []).problem(str(error), "backup", "cron")]
    return []


def find_readable_secrets(root: Path) -> list[Problem]:
    """Warn when config.toml seems to hold a secret and other users of this machine may read it."""
    if not ChannelSecrets(root, os.environ).is_open_to_others(FILE):
        return []
    table = read_table(root, [])
    reason = f"it may be a secret, and others on this machine may read it: chmod 600 {FILE}, or write ${{NAME}} here"
    found = (path for path, text in _texts_in(table.values) if _looks_secret(path, text))
    return [replace(table.problem(reason, *path), is_warning=True) for path in islice(found, 1)]


def _texts_in(table: Mapping[str, object], *path: str) -> Iterator[tuple[tuple[str, ...], str]]:
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _texts_in(value, *path, key)
        elif isinstance(value, str):
            yield (*path, key), value


def _looks_secret(path: tuple[str, ...], text: str) -> bool:
    """Return whether a text is a secret: by its name, as an address with a password, or as a channel's address."""
    *above, key = path
    if not text or "${" in text or text.startswith((ENV, CREDENTIAL)) or key.endswith("_file"):
        return False
    has_token = above[:1] == ["channels"] and key in ("url", "webhook") and not text.startswith("ntfy")
    return has_token or is_secret(key) or hide_in_url(text) != text


def find_missing_variables(specs: Sequence[JobSpec], environ: Mapping[str, str]) -> Iterator[Problem]:
    """Warn about incomplete ping addresses."""
    for spec in specs:
        ping = spec.ping or NO_ADDRESSES
        for address in () if ping.is_own else (ping.base, ping.start, ping.success, ping.fail):
            for name in missing_variables(address, environ):
                reason = f"{spec.id}: the variable {name} is not set, in the environment of this check"
                yield Problem(FILE, None, "ping_url", reason, is_warning=True)


async def find_channel_problems(settings: Settings) -> list[Problem]:
    """Check the notification channels; the process that sends is started only if one has an address of a service."""
    secrets, helper = ChannelSecrets(settings.root, os.environ), AlertHelper(RealClock(), os.environ)
    try:
        found = await check_channels(settings.alerts.channels.values(), secrets, helper)
    finally:
        await helper.close()
    table = read_table(settings.root, [])
    problems = []
    for each in found:
        problem = table.problem(each.reason, "channels", each.channel, *each.keys)
        if each.is_of_environment:
            problem = replace(problem, reason=f"{each.reason}, in the environment of this check", is_warning=True)
        problems.append(problem)
    for channel in settings.alerts.channels.values():
        for key, file in (("url_file", channel.url_file), ("secret_file", channel.secret_file)):
            if file and secrets.is_open_to_others(file):
                told = table.problem(
                    f"others on this machine may read it: chmod 600 {file}", "channels", channel.name, key
                )
                problems.append(replace(told, is_warning=True))
    return problems


async def compile_all(settings: Settings, found: Scan, specs: Sequence[JobSpec]) -> list[Problem]:
    async with open_pool(clock=RealClock(), workers=1, init=engine_info(settings, None)) as pool:
        codes = [  # each file separately, so that a problem in one does not hide problems in others
            structs.replace(code, chunk=chunk, source=source, more=())
            for code in (code_of(file, 0) for file in found.jobs.values())
            for chunk, source in ((code.chunk, code.source), *code.more)
            if source
        ]
        for spec in specs:  # a file that can't be read is left for `spyweb test` to report
            path = f"{spec.folder}/{TESTS}"
            source = read_source(settings.root, path) if (settings.root / path).is_file() else b""
            if source and not isinstance(source, Problem):
                codes.append(Code(job=spec.id, generation=0, chunk=path, source=source, memory_limit=spec.memory_limit))
        codes += [Code(job=BROKEN, generation=0, chunk=path, source=source) for path, source in found.broken_lua]
        of_server, unread = find_files(settings.root)
        codes += [Code(job=SERVER, generation=0, chunk=path, source=source) for path, source in of_server.items()]
        verdicts = [await judge(pool.check(code), code) for code in codes]
    return [*unread, *(verdict.problem for verdict in verdicts if verdict.problem)]


def find_broken_promises(
    specs: Iterable[JobSpec], environment: Mapping[str, str], data: Path | None = None
) -> list[Problem]:
    """Return a warning for each permitted program and folder that can't be used, or that exposes too much."""
    is_unit = "INVOCATION_ID" in environment
    found: dict[Problem, None] = {}
    for spec in specs:
        reasons = [
            ("permissions.exec", program, why_not_executable(program, is_unit=is_unit))
            for program in spec.policy.programs
        ]
        reasons += [("permissions.files", root, why_not_writable(root, is_unit=is_unit)) for root in spec.policy.roots]
        reasons += [("permissions.files", root, why_too_wide(root, data)) for root in spec.policy.roots]
        for key, path, reason in reasons:
            if reason:
                found[Problem(spec.path, None, key, f"{path}: {reason}", is_warning=True)] = None
    return list(found)


def why_not_executable(path: str, *, is_unit: bool) -> str:
    """Return why a program can't be executed; empty if it can."""
    try:
        status = os.stat(path)
    except OSError as error:
        return _why_absent(path, error, is_unit=is_unit)
    if not stat.S_ISREG(status.st_mode) or not os.access(path, os.X_OK):
        is_mount = bool(os.statvfs(path).f_flag & os.ST_NOEXEC)
        return "its file system is mounted with noexec (NoExecPaths= in a unit)" if is_mount else "it is not executable"
    if status.st_mode & (stat.S_ISUID | stat.S_ISGID) and _has_no_new_privileges():
        return "it changes its user or group, which NoNewPrivileges=yes of the unit does not allow"
    return ""


def why_not_writable(path: str, *, is_unit: bool) -> str:
    """Return why files below a folder can't be written; empty if they can."""
    try:
        status = os.stat(path)
    except OSError as error:
        return _why_absent(path, error, is_unit=is_unit)
    if not stat.S_ISDIR(status.st_mode):
        return "it is not a folder"
    if os.statvfs(path).f_flag & os.ST_RDONLY:
        return "it is read-only" + (": add it to ReadWritePaths= of the unit" if is_unit else "")
    return "" if os.access(path, os.W_OK | os.X_OK) else "this user may not write there"


def why_too_wide(path: str, data: Path | None) -> str:
    """Return the warning about a folder that contains spyweb's own data; empty if it does not."""
    root, kept = Path(os.path.realpath(path)), data and Path(os.path.realpath(data))
    if kept is None or not (kept.is_relative_to(root) or root.is_relative_to(kept)):
        return ""
    return f"it contains {kept.name}/ of this project: file.* writes nothing there, but can read it"


def _why_absent(path: str, error: OSError, *, is_unit: bool) -> str:
    if is_unit and any(Path(path).is_relative_to(home) for home in HOMES):
        return "it can't be seen: ProtectHome= of the unit hides homes"
    return str(error.strerror)


def _has_no_new_privileges() -> bool:
    try:
        return "NoNewPrivs:\t1" in STATUS.read_text()
    except OSError:
        return False
