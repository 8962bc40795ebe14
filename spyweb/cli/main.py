"""The command line: the table of commands, and where errors become exit codes."""

from __future__ import annotations

import gc
import math
import os
import platform
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from functools import partial, wraps
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, ParamSpec

import typer
from typer.core import TyperCommand, TyperGroup

from spyweb import __version__
from spyweb.cli import output
from spyweb.cli.options import Output
from spyweb.cli.output import Format
from spyweb.errors import ExitCode, FetchError, NoAccess, OpError, PoolError, ScriptError, SpywebError, legible

P = ParamSpec("P")
Command = Callable[..., ExitCode | None]


def commands_of(module: str, *names: str, **functions: str) -> dict[str, str]:
    """Return the module and the function of commands by name; those of `functions` have another name than theirs."""
    found = {**dict(zip(names, names, strict=True)), **functions}
    return {name: f"spyweb.{module}:{function}" for name, function in found.items()}


# A module is imported when one of its commands is used.
COMMANDS = {
    **commands_of("daemon.commands.start", "start", "stop"),
    **commands_of("daemon.commands.run", "run", "debug"),
    **commands_of("daemon.commands.try_page", **{"try": "try_page"}),
    **commands_of("daemon.commands.check", "check"),
    **commands_of("daemon.commands.test", test="lua_tests"),
    **commands_of("subjects.jobs.commands", "jobs"),
    **commands_of("subjects.jobs.show", "show"),
    **commands_of("subjects.uptime.commands", "uptime"),
    **commands_of("subjects.runs.commands", "runs", "artifacts"),
    **commands_of("subjects.when.commands", "audit"),
    **commands_of("subjects.records.commands", "records"),
    **commands_of("subjects.outbox.commands", "outbox"),
    **commands_of("subjects.jobs.commands", next="next_runs"),
    **commands_of("subjects.drift.commands", "drift"),
    **commands_of("subjects.jobs.commands", "logs", "trigger"),
    **commands_of("subjects.runs.commands", "retry"),
    **commands_of("daemon.commands.replay", "replay"),
    **commands_of("subjects.jobs.commands", "pause", "resume"),
    **commands_of("subjects.health.commands", "health"),
    **commands_of("daemon.commands.check", "doctor"),
    **commands_of("subjects.nodes.commands", "nodes"),
    **commands_of("subjects.state.commands.transfer", "backup", "restore", "vacuum"),
    **commands_of("cli.init", "init", "schema", "types"),
    **commands_of("cli.main", "version"),
}
HIDDEN = commands_of("cli.main", update="absent", profile="absent", v="version")
ENTRIES, TRANSFER = "subjects.state.commands.entries", "subjects.state.commands.transfer"
STATE = {
    **commands_of(ENTRIES, list="list_entries", show="show", get="get", set="set_entry"),
    **commands_of(ENTRIES, "delete", "clear", "stats", "locks", "history", "rollback"),
    **commands_of(TRANSFER, **{"export": "export", "import": "import_file"}, move="move"),
    **commands_of(ENTRIES, "watch"),
    **commands_of(TRANSFER, "rekey"),
    **commands_of("subjects.workflows.commands", "workflow"),
}
INCIDENTS = ("show", "history", "ack", "unack", "note", "silence", "unsilence")
GROUPS = {
    "alerts": {
        **commands_of("subjects.incidents.commands", list="list_incidents"),
        **commands_of("subjects.incidents.commands", *INCIDENTS, channels="list_channels", test="try_channel"),
    },
    "maintenance": commands_of("subjects.when.commands", list="list_maintenance", begin="begin", end="end"),
    "state": STATE,
    "store": commands_of(TRANSFER, move="move_store"),
    "keys": commands_of("subjects.access.commands", add="add", list="list_keys", revoke="revoke", audit="audit"),
    "status": commands_of("subjects.status.commands", export="export"),
    "systemd": commands_of("cli.systemd", "install", "uninstall"),
}

ANYTHING = {"allow_extra_args": True, "ignore_unknown_options": True}
SETTINGS = {
    HIDDEN["update"]: ANYTHING,
    STATE["set"]: {"ignore_unknown_options": True},  # `state set n -5`: a negative number is no option
}

# They work without a daemon.
OF_FILES = {
    *("start", "stop", "try", "check", "doctor", "replay", "test", "artifacts", "init", "schema", "types", "systemd"),
    *("backup", "restore", "vacuum"),
}

EXIT_CODES = (
    "Exit codes: 0 ok; 1 a job, test or check failed; 2 usage, lock, port or permission; 130 Ctrl-C; 141 output closed."
)


def main() -> None:
    """Run the command that the arguments name, and exit with its code."""
    if sys.platform.startswith("win"):
        output.complain("spyweb does not run on Windows itself: use WSL, or the container image")
        sys.exit(ExitCode.USAGE)
    output.prepare()
    try:
        app = build()
        gc.freeze()
        gc.enable()
        app(prog_name="spyweb")
    finally:
        output.flush()


def build() -> typer.Typer:
    """Build the command line; each command is imported once it is asked for."""
    app = typer.Typer(
        cls=_Root,
        no_args_is_help=True,
        rich_markup_mode=None,  # no rich for --help
        pretty_exceptions_enable=False,
        epilog=EXIT_CODES,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_project)
    return app


class _Lazy(Mapping[str, Any]):
    """The commands and groups of these tables by name; each is imported when it is looked up."""

    def __init__(self, commands: Mapping[str, str], groups: Mapping[str, Mapping[str, str]]) -> None:
        self._commands = commands
        self._groups = groups

    def __iter__(self) -> Iterator[str]:
        return iter((*self._commands, *self._groups))

    def __len__(self) -> int:
        return len(self._commands) + len(self._groups)

    def __getitem__(self, name: str) -> Any:
        if name in self._groups:
            lazy: Any = _Lazy(self._groups[name], {})
            summary = read_guide()[name][0]
            return _Group(
                name=name, commands=lazy, help=summary, no_args_is_help=True, rich_markup_mode=None, epilog=EXIT_CODES
            )
        place = self._commands[name]
        module, _, function = place.partition(":")
        app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
        command: Command = getattr(import_module(module), function)
        declare = app.command(
            name, cls=_Command, hidden=name in HIDDEN, epilog=EXIT_CODES, context_settings=SETTINGS.get(place)
        )
        declare(_guarded(command))
        return typer.main.get_command(app)


def version(form: Output = Format.TABLE) -> None:
    """Show the versions of spyweb and Python."""
    python = platform.python_version()
    line = f"spyweb {__version__} (Python {python}, {platform.system()})"
    output.tell(form, line, {"spyweb": __version__, "python": python})


def absent(context: typer.Context) -> ExitCode:
    """Say why this program has no command of this name, which another has."""
    why = {"update": "update spyweb the way it was installed", "profile": "there is no browser in it"}
    output.complain(f"`{context.info_name}` is not part of this program: {why[str(context.info_name)]}")
    return ExitCode.USAGE


def _show_version(wanted: bool) -> None:
    if wanted:
        version()
        raise typer.Exit


def _project(
    context: typer.Context,
    directory: Annotated[
        str | None, typer.Option("-C", metavar="DIR", help="The project's folder, if it is not this one.")
    ] = None,
    url: Annotated[
        str | None,
        typer.Option("--url", metavar="URL", help="Ask the daemon there: http://HOST:PORT; also SPYWEB_URL."),
    ] = None,
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Run Lua jobs on a schedule, each in its own isolated VM."""
    if url is not None:
        if directory is not None:
            raise typer.BadParameter("it goes without -C", param_hint="'--url'")
        if context.invoked_subcommand in OF_FILES:
            reason = f"`spyweb {context.invoked_subcommand}` works on files of this machine"
            raise typer.BadParameter(reason, param_hint="'--url'")
    # A current folder that was deleted is reported by `root_of`.
    if directory not in (None, ".") and not os.path.isdir(directory):
        state = "is a file" if os.path.exists(directory) else "does not exist"
        raise typer.BadParameter(f"Directory {legible(directory)!r} {state}.", param_hint="'-C'")


class _LazyConversion:
    """Skips typer's conversion of values that need none: it imports pydantic, which is slow, even for options that were
    not typed."""

    def get_params(self, ctx: Any) -> list[Any]:
        parameters: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for parameter in parameters:
            if "process_value" not in vars(parameter):
                parameter.process_value = partial(_converted, parameter, parameter.process_value)
        return parameters


def _converted(parameter: Any, convert: Callable[[Any, Any], Any], context: Any, value: Any) -> Any:
    kind = parameter.type_descriptor.annotation
    if isinstance(value, str) and isinstance(kind, type) and issubclass(kind, StrEnum) and value in set(kind):
        value = kind(value)
    elif kind is int and isinstance(value, str) and value.isdecimal() and value.isascii() and len(value) < 10:
        limits = parameter.type_descriptor.parameter_info
        value = int(value) if (limits.min or 0) <= int(value) <= (limits.max or math.inf) else value
    is_as_it_is = not parameter.required if value is None else type(value) is kind
    if not is_as_it_is:
        return convert(context, value)
    return parameter.callback(context, parameter, value) if parameter.callback else value


def read_guide() -> Mapping[str, Sequence[str]]:
    """Return the line of each command in the list of commands, and its examples."""
    blocks = Path(__file__).with_name("guide.txt").read_text(encoding="utf-8").replace("\n  ", "\t").splitlines()
    parts = (block.partition(": ") for block in blocks if not block.startswith("#"))
    return {name: lines.split("\t") for name, _, lines in parts}


class _Guided(_LazyConversion):
    """Shows the examples of a command below its help."""

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        _, *examples = read_guide().get(_path_of(ctx) or "spyweb", [""])
        if examples:
            with formatter.section("Examples"):
                formatter.write("".join(f"{' ' * formatter.current_indent}{line}\n" for line in examples))
        super().format_epilog(ctx, formatter)  # type: ignore[misc]


def _path_of(context: Any) -> str:
    """Return the command of a context as people type it, without `spyweb`: `state set`."""
    return "" if context.parent is None else f"{_path_of(context.parent)} {context.info_name}".strip()


class _Command(_Guided, TyperCommand): ...


class _Group(_Guided, TyperGroup):
    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.commands)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """List the commands with their lines of the guide, which imports none of them."""
        shown = [name for name in self.commands if name not in HIDDEN]
        guide, group = read_guide(), f"{_path_of(ctx)} ".lstrip()
        with formatter.section("Commands"):
            formatter.write_dl([(name, guide.get(group + name, [""])[0]) for name in shown])


class _Root(_Group):
    """The group of all commands; reports wrong usage in one line that a log can hold, like every other error."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{**settings, "commands": _Lazy({**COMMANDS, **HIDDEN}, GROUPS)})

    def make_context(self, *args: Any, **options: Any) -> Any:
        with _usage_errors_reported():
            return super().make_context(*args, **options)

    def invoke(self, ctx: Any) -> Any:
        with _usage_errors_reported():
            return super().invoke(ctx)


@contextmanager
def _usage_errors_reported() -> Iterator[None]:
    try:
        yield
    except typer.TyperException as error:
        message = error.format_message().replace(": Value error, ", ": ").rstrip(".")
        if message in ("No such option: -C", "No such option: --url"):
            message = f"{message.removeprefix('No such option: ')} stands before the command"
        context = getattr(error, "ctx", None)
        if "\n" in message:  # the help, shown when no command was typed
            output.note(message)
        else:
            output.complain(f"{message}: `{context.command_path} -h` shows how" if context else message)
        raise typer.Exit(ExitCode.USAGE) from error


def _guarded(command: Callable[P, ExitCode | None]) -> Callable[P, None]:
    """Wrap a command in the boundary that turns its errors into lines on stderr and an exit code."""

    @wraps(command)
    def run_command(*args: P.args, **options: P.kwargs) -> None:
        try:
            code = command(*args, **options)
        except SpywebError as error:
            output.report(error)
            is_of_job = isinstance(error, (ScriptError, OpError, FetchError, PoolError))
            code = ExitCode.FAILED if is_of_job else ExitCode.USAGE
        except PermissionError as error:
            output.report(NoAccess(f"{error.filename}: {error.strerror}"))
            code = ExitCode.USAGE
        except KeyboardInterrupt:
            code = ExitCode.INTERRUPTED
        raise typer.Exit(code or ExitCode.OK)

    return run_command
