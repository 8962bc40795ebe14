"""`spyweb version`, and answers to commands that similar programs have and spyweb lacks."""

from __future__ import annotations

import platform

from spyweb import __version__
from spyweb.cli import output
from spyweb.cli.options import Output
from spyweb.cli.output import Format
from spyweb.errors import ExitCode

WHATEVER = {"allow_extra_args": True, "ignore_unknown_options": True}


def version(form: Output = Format.TABLE) -> None:
    """Show the version of spyweb, and of its Python."""
    python = platform.python_version()
    line = f"spyweb {__version__} (Python {python}, {platform.system()})"
    output.tell(form, line, {"spyweb": __version__, "python": python})


def update() -> ExitCode:
    """Say how to update: this program does not do it itself."""
    output.complain("`update` is not part of this program: update spyweb the way it was installed")
    return ExitCode.USAGE


def profile() -> ExitCode:
    """Say that this program has no profiler."""
    output.complain("`profile` is not part of this program: there is no browser in it, and so no profile of one")
    return ExitCode.USAGE


# Read by cli/main.py: `update --check` and `profile clear all` are answered like `update` and `profile`.
update.context_settings = WHATEVER  # type: ignore[attr-defined]
profile.context_settings = WHATEVER  # type: ignore[attr-defined]
