"""Run the command line as a person types it, without a process."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from spyweb.cli.main import build


@dataclass(frozen=True, slots=True)
class Answer:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def table(self) -> list[list[str]]:
        """Return the cells of each row below the header; columns are two spaces apart."""
        return [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in self.lines[1:]]


def spyweb(*words: str, root: Path | None = None) -> Answer:
    """Return what runs a command; a bug in it is raised here, as it would end the process with its traceback."""
    project = ["-C", str(root)] if root else []
    result = CliRunner().invoke(build(), [*project, *words], catch_exceptions=False)
    return Answer(result.exit_code, result.stdout, result.stderr)
