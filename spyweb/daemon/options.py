"""What the daemon is started with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    root: Path
    flags: Mapping[str, object] = field(default_factory=dict)  # settings given on the command line
    repair: bool = False  # move a damaged database aside
