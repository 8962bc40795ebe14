"""`spyweb systemd install` and `uninstall`: make the project a service of the machine, or of the user.

template/spyweb.service is the unit for the usual paths; the user, the interpreter and the project are filled in.
"""

from __future__ import annotations

import os
import pwd
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer
from msgspec import Struct

from spyweb.cli import output
from spyweb.cli.init import replaced
from spyweb.cli.options import Output, root_of
from spyweb.cli.output import Format
from spyweb.errors import NoAccess, Refused
from spyweb.settings.load import examine_settings, load_settings
from spyweb.settings.sections import Settings

MARK = "# Made by `spyweb systemd install`; `spyweb systemd uninstall` removes it."
UNIT, FOR_COMMANDS = "spyweb.service", "exec.conf"  # in template/; the second is added when jobs may run commands
FILE_SYSTEM = "# The file system"  # begins a part that needs root's rights
SYSTEM_UNITS = Path("/etc/systemd/system")
BOOTED = Path("/run/systemd/system")  # there when systemd runs the machine: sd_booted(3)
SHARED_TEMPORARY = (Path("/tmp"), Path("/var/tmp"))
HOMES = (Path("/home"), Path("/root"), Path("/run/user"))

Systemctl = Callable[[Sequence[str]], int]

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,200}")


UserUnit = Annotated[bool, typer.Option("--user", help="Use this user's own systemd, without root.")]
Name = Annotated[str, typer.Option(metavar="NAME", help="The unit's name.")]


def install(
    context: typer.Context,
    write: Annotated[bool, typer.Option("--write", help="Write the unit instead of printing it.")] = False,
    user_unit: UserUnit = False,
    name: Name = "spyweb",
    form: Output = Format.TABLE,
) -> None:
    """Print a systemd unit for this project, or write it."""
    settings = load_settings(root_of(context), environ=os.environ, flags={})
    path = unit_path(name, user_unit=user_unit, environment=os.environ)
    unit, added = describe(settings, user_unit=user_unit, name=name), path.with_name(f"{path.name}.d") / FOR_COMMANDS
    if write:
        systemctl = find_systemctl(user_unit=user_unit)
        _put(path, render(unit))
        lines = []
        if unit.runs_commands:
            _put(added, render(unit, FOR_COMMANDS))
            lines.append(f"wrote {added}: jobs may run commands")
        else:
            _remove_addition(added)
        systemctl(["daemon-reload"])
        command = "systemctl --user" if user_unit else "systemctl"
        lines += [f"wrote {path}; to start it now and at every boot:", f"  {command} enable --now {name}"]
    else:
        lines = render(unit).splitlines()
        if unit.runs_commands:
            lines += ["", f"# {added}", *render(unit, FOR_COMMANDS).splitlines()]
    output.tell(form, "\n".join(lines), lines)


def uninstall(
    context: typer.Context, user_unit: UserUnit = False, name: Name = "spyweb", form: Output = Format.TABLE
) -> None:
    """Stop the service and remove its unit.  The data stays."""
    root, path = root_of(context), unit_path(name, user_unit=user_unit, environment=os.environ)
    _refuse_strange(path)
    systemctl = find_systemctl(user_unit=user_unit)
    if not os.access(path.parent, os.W_OK):
        raise _needs_root(path)
    systemctl(["disable", "--now", name])
    path.unlink()
    _remove_addition(path.with_name(f"{path.name}.d") / FOR_COMMANDS)
    systemctl(["daemon-reload"])
    settings, _ = examine_settings(root, environ=os.environ, flags={})  # also of a config.toml that is broken
    lines = [f"removed {path}", f"kept {root} and the data in {settings.daemon.data_dir}"]
    output.tell(form, "\n".join(lines), lines)


class Unit(Struct, frozen=True, kw_only=True):
    """The settings of a unit that differ from one installation to the next."""

    program: tuple[str, ...]  # the spyweb to start
    root: Path
    writable: tuple[Path, ...]  # the project, and the data where that lies elsewhere
    runs_from: tuple[Path, ...]  # everything that must stay readable: the project, the interpreter and its library
    user: str | None  # None: a unit of the user's own systemd
    name: str = "spyweb"
    grace_s: int = 10
    runs_commands: bool = False  # some job may run commands


def render(unit: Unit, template: str = UNIT) -> str:
    """Fill in the unit for the usual paths; a user's own unit lacks the parts that need root's rights."""
    text = (files("spyweb.cli") / "template" / template).read_text(encoding="utf-8")
    if unit.user is None:
        text = "\n\n".join(part for part in text.split("\n\n") if not part.startswith(FILE_SYSTEM))
    command = " ".join(map(_quoted, (*unit.program, "-C", str(unit.root), "start")))
    plain = _one_line(str(unit.root)).replace("%", "%%")  # for a directive that takes the rest of its line as it is
    values = {
        "Description": f"spyweb: Lua jobs in {plain}",
        "User": unit.user or "",
        "WorkingDirectory": plain,
        "ExecStart": command.replace("$", "$$"),  # which begins a variable in a command alone
        "EnvironmentFile": f"-{'%h/.config' if unit.user is None else '/etc'}/spyweb/{unit.name}.env",
        "TimeoutStopSec": str(unit.grace_s + 20),  # time to record what was cut short, and to commit
        "ReadWritePaths": " ".join(_quoted(str(path)) for path in unit.writable),
        "ProtectHome": "read-only" if _any_below(unit.runs_from, HOMES) else "yes",
        "PrivateTmp": "no" if _any_below(unit.runs_from, SHARED_TEMPORARY) else "yes",
        "WantedBy": "default.target" if unit.user is None else "multi-user.target",
    }
    lines = text.splitlines()
    for key, value in values.items():
        lines = [f"{key}={value}" if line.startswith(f"{key}=") else line for line in lines]
    return "".join(f"{line}\n" for line in lines if unit.user is not None or not line.startswith("User="))


def _any_below(paths: Sequence[Path], places: Sequence[Path]) -> bool:
    return any(path.is_relative_to(place) for path in paths for place in places)


def _quoted(word: str) -> str:
    escaped = _one_line(word).replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return escaped if re.fullmatch(r"[\w@%+=:,./-]+", escaped, re.ASCII) else f'"{escaped}"'


def _one_line(text: str) -> str:
    if not text.isprintable():
        reason = "it holds line breaks or control characters, or is not UTF-8"
        raise Refused(f"{text!r} can't stand in a unit file: {reason}")
    return text


def describe(settings: Settings, *, user_unit: bool, name: str) -> Unit:
    data = [settings.daemon.data_dir, *([settings.store.path.parent] if settings.store.is_file else [])]
    if settings.backup.cron:
        data.append(settings.root / settings.backup.dir)
    of_jobs = [table.table("permissions").values.get("exec") for table in settings.jobs.values()]
    root, command = settings.root, Path(sys.executable).with_name("spyweb")  # where there is none, the module
    return Unit(
        program=(str(command),) if command.exists() else (sys.executable, "-m", "spyweb"),
        root=root,
        writable=(root, *sorted({path for path in data if not path.is_relative_to(root)})),
        runs_from=(root, *data, Path(sys.executable), Path(sys.base_prefix)),
        user=None if user_unit else whose(root, os.environ),
        name=name,
        grace_s=-(-settings.daemon.shutdown_grace_ms // 1000),
        runs_commands=settings.permissions.exec != () or settings.server.permissions.may_exec or any(of_jobs),
    )


def whose(root: Path, environment: Mapping[str, str]) -> str:
    """Return the user that the service runs as: the caller; for root the owner of the project, or else sudo's user."""
    if os.geteuid() != 0:
        return pwd.getpwuid(os.geteuid()).pw_name
    owner = root.stat().st_uid
    with suppress(KeyError):  # an owner without a name
        if owner != 0:
            return pwd.getpwuid(owner).pw_name
    return environment.get("SUDO_USER") or "root"


def unit_path(name: str, *, user_unit: bool, environment: Mapping[str, str]) -> Path:
    """Return the path of a unit.  Raises Refused for a name that no unit can have."""
    if not _NAME.fullmatch(name) or name.endswith(".service"):
        raise Refused(f"{name!r} can't be a unit's name: letters, digits and _ . : - only, without .service")
    if not user_unit:
        return SYSTEM_UNITS / f"{name}.service"
    settings = Path(environment.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    return settings / "systemd/user" / f"{name}.service"


def _remove_addition(path: Path) -> None:
    """Remove the file if it is ours, and its folder if nothing else is in it."""
    if path.exists() and _is_ours(path):
        path.unlink()
        with suppress(OSError):
            path.parent.rmdir()


def find_systemctl(*, user_unit: bool) -> Systemctl:
    program = shutil.which("systemctl")
    if program is None or not BOOTED.is_dir():
        raise Refused("systemd does not run on this machine; without --write the unit is printed")
    scope = ["--user"] if user_unit else []
    return lambda words: subprocess.run([program, *scope, *words], check=False).returncode


def _put(path: Path, text: str) -> None:
    """Write the unit whole or not at all, and never replace one that spyweb did not make."""
    if path.exists():
        _refuse_strange(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replaced(path, 0o644) as file:
            file.write(text.encode())
        path.chmod(0o644)  # independent of the umask
    except PermissionError as error:
        raise _needs_root(path) from error


def _refuse_strange(path: Path) -> None:
    try:
        ours = _is_ours(path)
    except FileNotFoundError as error:
        raise Refused(f"there is no {path}") from error
    if not ours:
        raise Refused(f"{path} was not made by `spyweb systemd install`: nothing was changed")


def _is_ours(path: Path) -> bool:
    return path.read_text(encoding="utf-8", errors="replace").startswith(MARK)


def _needs_root(path: Path) -> NoAccess:
    return NoAccess(f"writing to {path.parent} needs root's rights: use sudo, or --user for a unit of your own")
