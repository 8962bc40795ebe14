"""Open the world of scripts' ops: network, files, SQL, commands and traces; describe the machine to every VM."""

from __future__ import annotations

import asyncio
import os
import platform
import tempfile
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from threading import Thread

import structlog

from spyweb import __version__
from spyweb.alerts.channels import OpenChannels
from spyweb.clock import Clock
from spyweb.confined.parent import close_to_others
from spyweb.errors import ConfigError, Problem
from spyweb.extraction.extractor import Extractor
from spyweb.lua.session import EngineInfo
from spyweb.ops import catalog
from spyweb.ops.files.artifacts import FOLDER, Artifacts
from spyweb.ops.files.files import Files
from spyweb.ops.locks import LockKeeper
from spyweb.ops.network.address_check import OwnSockets
from spyweb.ops.network.client import open_client
from spyweb.ops.notify_desktop import Desktop
from spyweb.ops.sources import Sources
from spyweb.ops.world import World
from spyweb.ownership import Ownership
from spyweb.programs.cgroup import find_delegated, make_groups
from spyweb.programs.runner import CommandLimits, CommandRunner
from spyweb.programs.sweep import remove_left
from spyweb.settings.sections import FILE, SECRETS, ExecSettings, Settings, TelemetrySettings
from spyweb.store.sqlite.store import Store
from spyweb.store.user_sql.user_db import UserDatabase
from spyweb.tracing.span import Tracer

log = structlog.get_logger()

PREFIX = "SPYWEB_"
LAST_TRACES_S = 2.0  # for spans that wait at a stop
NO_GROUP = "needs a control group that systemd delegates to the daemon: Delegate=cpu memory pids in its unit"
WITHOUT_GROUP = Problem(FILE, None, "exec.processes", NO_GROUP)


async def open_world(  # noqa: PLR0913 - the parts of a world
    stack: AsyncExitStack,
    settings: Settings,
    store: Store,
    extractor: Extractor,
    sql: UserDatabase,
    channels: OpenChannels,
    own_sockets: OwnSockets,
    clock: Clock,
    ownership: Ownership,
) -> World:
    http = await stack.enter_async_context(open_client(settings.http, clock, own_sockets))
    locks = LockKeeper(store.locks, clock)
    stack.callback(locks.close)
    sources = Sources(settings.root)
    files = Files(settings.root, clock, kept_out=settings.daemon.data_dir)
    return World(
        store=store,
        clock=clock,
        http=http,
        sources=sources,
        files=files,
        artifacts=Artifacts(settings.root, settings.daemon.data_dir / FOLDER),
        locks=locks,
        extractor=extractor,
        sql=sql,
        commands=await stack.enter_async_context(open_commands(settings.exec, clock)),
        desktop=Desktop(os.environ),
        channels=channels,
        state=settings.state,
        on_store_error=settings.store.on_error,
        tracer=await open_tracer(stack, settings.telemetry),
        ownership=ownership,
    )


async def open_tracer(stack: AsyncExitStack, settings: TelemetrySettings) -> Tracer | None:
    if not settings.otlp_endpoint:
        return None
    try:
        from spyweb.tracing.otel import OtelTracer  # here: it is an extra, and takes memory
    except ImportError:
        log.warning("[telemetry] otlp_endpoint needs an extra: pip install 'spyweb[otel]'; nothing is traced")
        return None
    tracer = OtelTracer(settings.otlp_endpoint, sample=settings.sample, version=__version__)
    stack.push_async_callback(asyncio.to_thread, end_within, tracer.close, LAST_TRACES_S)
    return tracer


def end_within(close: Callable[[], None], seconds: float) -> None:
    """Wait this long for a blocking call, and abandon it then: a collector may be anywhere."""
    thread = Thread(target=close, name="the last traces", daemon=True)
    thread.start()
    thread.join(seconds)


def limits_of(settings: ExecSettings) -> CommandLimits:
    return CommandLimits(
        at_once=settings.at_once,
        memory=settings.memory or 0,
        cpu_s=-(-(settings.cpu_ms or 0) // 1000),
        processes=settings.processes or 0,
    )


@asynccontextmanager
async def open_commands(settings: ExecSettings, clock: Clock) -> AsyncIterator[CommandRunner]:
    """Open a runner of commands.  Raises ConfigError when a limit can't be enforced.

    With the first command this process becomes unreadable for other processes of the same user: its environment has
    secrets that no script may see.
    """
    await asyncio.to_thread(remove_left, os.fsencode(tempfile.gettempdir()), clock.now_ms())
    runner = CommandRunner(clock, limits_of(settings), find_groups(settings), before_first=hide_environment)
    try:
        yield runner
    finally:
        await runner.close()


def hide_environment() -> None:
    """Keep other processes of this user from reading this one; processes of root still can."""
    close_to_others()
    if os.geteuid() == 0:
        log.warning("commands run as root and can read the daemon's environment: start spyweb as its own user")


def find_broken_limits(settings: ExecSettings) -> list[Problem]:
    """Return a warning when a daemon that is started like this process would refuse a limit on commands."""
    if settings.processes is None or find_delegated() is not None:
        return []
    return [replace(WITHOUT_GROUP, is_warning=True)]


def find_groups(settings: ExecSettings) -> Path | None:
    group = find_delegated()
    if group is None:
        if settings.processes is not None:
            raise ConfigError([WITHOUT_GROUP])
        return None
    try:
        return make_groups(group)
    except OSError as error:
        if settings.processes is not None:
            raise ConfigError([Problem(FILE, None, "exec.processes", f"{NO_GROUP} ({error.strerror})")]) from error
        log.warning("commands have no control groups of their own", group=str(group), reason=error.strerror)
        return None


def engine_info(settings: Settings, server_url: str | None) -> EngineInfo:
    engine: dict[str, object] = {
        "os": platform.system().lower(),
        "arch": platform.machine(),
        "headless": not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")),
        "version": __version__,
        "lua_version": "lua54",
        "storage": "sqlite",
    }
    if server_url:
        engine["server_url"] = server_url
    return EngineInfo(
        ops=sorted(catalog.CATALOGUE),
        engine=engine,
        env=visible_environment(os.environ, settings.security.env_deny),
        timezone=settings.daemon.timezone,
    )


def visible_environment(environ: Mapping[str, str], deny: Iterable[str] = ()) -> dict[str, str]:
    """Return the variables of env_get: every SPYWEB_NAME as NAME, except those denied (with or without the prefix).

    The daemon's own secrets are always denied: no worker ever has them.  Bytes that are not UTF-8 are replaced.
    """
    denied = {name.removeprefix(PREFIX) for name in (*SECRETS, *deny)}
    return {
        _readable(name.removeprefix(PREFIX)): _readable(value)
        for name, value in environ.items()
        if name.startswith(PREFIX) and name != PREFIX and name.removeprefix(PREFIX) not in denied
    }


def _readable(text: str) -> str:
    """Replace bytes that are not UTF-8: Python keeps them as lone surrogates, which no frame can carry."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
