"""The command line: the table of commands, and where errors become exit codes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, ParamSpec

import typer
from typer.core import TyperGroup

from spyweb.cli import output
from spyweb.cli.about import profile, update, version
from spyweb.cli.check import check
from spyweb.cli.debug import debug
from spyweb.cli.exits import ExitCode, code_of
from spyweb.cli.health import health
from spyweb.cli.init import init
from spyweb.cli.jobs import jobs, next_runs
from spyweb.cli.logs import logs
from spyweb.cli.outbox import outbox
from spyweb.cli.records import records
from spyweb.cli.run import run
from spyweb.cli.runs import runs
from spyweb.cli.schema import schema
from spyweb.cli.service import install, uninstall
from spyweb.cli.start import start
from spyweb.cli.state.commands import STATE
from spyweb.cli.steer import pause, resume, trigger
from spyweb.cli.test import lua_tests
from spyweb.cli.types import types
from spyweb.daemon.streams import open_standard_streams
from spyweb.errors import NoAccess, SpywebError

P = ParamSpec("P")
Command = Callable[..., ExitCode | None]

COMMANDS: dict[str, Command] = {
    "start": start,
    "run": run,
    "debug": debug,
    "check": check,
    "test": lua_tests,
    "jobs": jobs,
    "runs": runs,
    "records": records,
    "outbox": outbox,
    "next": next_runs,
    "logs": logs,
    "trigger": trigger,
    "pause": pause,
    "resume": resume,
    "health": health,
    "init": init,
    "schema": schema,
    "types": types,
    "version": version,
}
SYSTEMD: dict[str, Command] = {"install": install, "uninstall": uninstall}
HIDDEN: dict[str, Command] = {"v": version, "update": update, "profile": profile}

EXIT_CODES = (
    "Exit codes: 0 ok; 1 a job, test or check failed; 2 usage, lock, port or permission; 130 Ctrl-C; 141 nobody reads."
)
NO_WINDOWS = "spyweb does not run on Windows itself: use WSL, or the container image"


def main() -> None:
    """Run what the words of the command line ask for, and exit with its code."""
    open_standard_streams()
    if sys.platform.startswith("win"):
        output.complain(NO_WINDOWS)
        sys.exit(ExitCode.USAGE)
    output.prepare()
    with output.written():
        build()(prog_name="spyweb")


def build() -> typer.Typer:
    app = typer.Typer(
        cls=_Commands,
        no_args_is_help=True,
        rich_markup_mode=None,  # no rich for --help
        pretty_exceptions_enable=False,
        epilog=EXIT_CODES,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_project)
    _add(app, COMMANDS)
    _add(app, HIDDEN, hidden=True)
    _add_group(app, "state", STATE, "Look at and change what scripts keep.")
    _add_group(app, "systemd", SYSTEMD, "Run the project as a service.")
    return app


def _add_group(app: typer.Typer, name: str, commands: dict[str, Command], summary: str) -> None:
    group = typer.Typer(no_args_is_help=True, rich_markup_mode=None, epilog=EXIT_CODES)
    _add(group, commands)
    app.add_typer(group, name=name, help=summary)


def _add(app: typer.Typer, commands: dict[str, Command], *, hidden: bool = False) -> None:
    for name, command in commands.items():
        settings = getattr(command, "context_settings", None)
        app.command(name, hidden=hidden, epilog=EXIT_CODES, context_settings=settings)(_guarded(command))


def _show_version(wanted: bool) -> None:
    if wanted:
        version()
        raise typer.Exit


def _project(
    directory: Annotated[
        Path,
        typer.Option("-C", metavar="DIR", exists=True, file_okay=False, readable=False, help="The project's folder."),
    ] = Path(),
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Run Lua jobs on a schedule, each in its own isolated VM."""


class _Commands(TyperGroup):
    """Whose wrong usage is one line that a log can hold, like every other error."""

    def make_context(self, *args: Any, **options: Any) -> Any:
        with _usage_told():
            return super().make_context(*args, **options)

    def invoke(self, ctx: Any) -> Any:
        with _usage_told():
            return super().invoke(ctx)


@contextmanager
def _usage_told() -> Iterator[None]:
    try:
        yield
    except typer.TyperException as error:
        _tell_usage(error)
        raise typer.Exit(ExitCode.USAGE) from error


def _tell_usage(error: typer.TyperException) -> None:
    message = error.format_message().replace(": Value error, ", ": ").rstrip(".")
    if "\n" in message:  # the help, for whoever typed no command
        output.note(message)
        return
    context = getattr(error, "ctx", None)
    output.complain(f"{message}: `{context.command_path} -h` shows how" if context else message)


def _guarded(command: Callable[P, ExitCode | None]) -> Callable[P, None]:
    """The boundary: a command's errors as lines on stderr and an exit code."""

    @wraps(command)
    def run_command(*args: P.args, **options: P.kwargs) -> None:
        try:
            code = command(*args, **options)
        except SpywebError as error:
            output.report(error)
            code = code_of(error)
        except PermissionError as error:
            output.report(NoAccess(f"{error.filename}: {error.strerror}"))
            code = ExitCode.USAGE
        except KeyboardInterrupt:
            code = ExitCode.INTERRUPTED
        raise typer.Exit(code or ExitCode.OK)

    return run_command
