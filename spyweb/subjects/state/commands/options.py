"""The options of the commands about stored values: whose entries, in what form, and whether to ask."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Concatenate, ParamSpec, TypeVar

import typer
from msgspec import Struct

from spyweb.cli import output
from spyweb.cli.options import complete_job, project_of
from spyweb.cli.output import Format
from spyweb.cli.project import Project
from spyweb.errors import Refused
from spyweb.model import JobId
from spyweb.store.model.entries import GLOBAL, STATE, agent_namespace, job_namespace, scope_namespace
from spyweb.subjects.state.commands.render import one_line
from spyweb.subjects.state.commands.stored import StoredState
from spyweb.views.jobs import find_job

P = ParamSpec("P")
R = TypeVar("R")


class StatePlace(Struct, frozen=True, kw_only=True):
    """A project, and the namespace in it that is meant."""

    project: Project
    chosen: str | None  # the namespace that was asked for

    @property
    def namespace(self) -> str:
        return self.chosen or STATE

    @property
    def timezone(self) -> str:
        return self.project.settings.daemon.timezone

    @property
    def keeps_text(self) -> bool:
        """Return whether the namespace is one of store_* or global_store_*, which keep text alone."""
        return self.namespace == GLOBAL or self.namespace.startswith(job_namespace(JobId("")))

    def state(self) -> StoredState:
        return StoredState(self.project.stored())


def parse_format(text: str) -> Format:
    """Return the output format; `text` is sloth-runner's name for a table."""
    return Format.TABLE if text == "text" else Format(text)


StateOutput = Annotated[
    Format,
    typer.Option("-o", "--output", parser=parse_format, metavar="[table|json]", help="A table for people, or JSON."),
]
Compat = Annotated[bool, typer.Option("--compat", help="JSON in sloth-runner's shape.")]
Key = Annotated[str, typer.Argument(metavar="KEY", help="The entry's key.")]
Pattern = Annotated[str, typer.Argument(metavar="PATTERN", help="Which keys: * is any run, ? one character.")]
Yes = Annotated[bool, typer.Option("-y", "--yes", help="Don't ask.")]

Job = Annotated[
    str | None, typer.Option("--job", metavar="ID", help="A job's store_* keys.", autocompletion=complete_job)
]
Scope = Annotated[str | None, typer.Option("--scope", metavar="NAME", help="A scope of state.set{scope=...}.")]
Agent = Annotated[str | None, typer.Option("--agent", metavar="NAME", help="The state of this agent.")]
Shared = Annotated[bool, typer.Option("--global", help="The global_store_* keys.")]


def placed(command: Callable[Concatenate[typer.Context, StatePlace, P], R]) -> Callable[..., R]:
    """Give a command the four options that choose a namespace; it is called with one StatePlace."""

    @wraps(command)
    def run(context: typer.Context, *args: P.args, **options: P.kwargs) -> R:
        chosen = {name: options.pop(name) for name in _CHOICES}
        return command(context, find_place(context, chosen), *args, **options)

    signature = inspect.signature(command, eval_str=True)
    own = [parameter for name, parameter in signature.parameters.items() if name != "place"]
    parameters = [*own, *_CHOICES.values()]
    # typer reads these two.
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def _choice(name: str, default: object, annotation: object) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


_CHOICES = {
    "job": _choice("job", None, Job),
    "scope": _choice("scope", None, Scope),
    "agent": _choice("agent", None, Agent),
    "shared": _choice("shared", False, Shared),
}


def find_place(context: typer.Context, chosen: dict[str, object]) -> StatePlace:
    """Return the namespace that was chosen.  Raises Refused when more than one is."""
    project = project_of(context)
    given = {name: value for name, value in chosen.items() if value not in (None, False)}
    if len(given) > 1:
        raise Refused("--job, --scope, --agent and --global exclude each other")
    for name, value in given.items():
        return StatePlace(project=project, chosen=_namespace(project, name, str(value)))
    return StatePlace(project=project, chosen=None)


def _namespace(project: Project, choice: str, name: str) -> str:
    if not name:
        raise Refused(f"--{choice}: can't be blank")
    match choice:
        case "job":
            # A job that is gone has its keys still.
            return job_namespace(find_job(project.backend().jobs(), name) or JobId(name))
        case "scope":
            return scope_namespace(name)
        case "agent":
            return agent_namespace(name)
        case _:
            return GLOBAL


def as_bytes(argument: str) -> bytes:
    """Return what was typed as bytes, also when it is not UTF-8."""
    return os.fsencode(argument)


def spelt(argument: str) -> str:
    """Return bytes as people are shown them."""
    return one_line(as_bytes(argument).decode("utf-8", "backslashreplace"))


def agree(question: str, *, yes: bool) -> bool:
    """Ask whether to go on.  Raises Refused where nobody can be asked."""
    if yes or output.confirm(question):
        return True
    output.note("nothing was changed")
    return False
