"""Make what looks for drift, over a store and a folder of a test."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from spyweb.clock import Clock
from spyweb.model import JobId, JobSpec
from spyweb.ops import catalog
from spyweb.ops.files.files import Files
from spyweb.permissions.policy import FilesRule, Grants, Policy
from spyweb.store.sqlite.store import Store
from spyweb.subjects.drift.service import DriftService

NOWHERE = Path("/nonexistent")


def make_drift(store: Store, clock: Clock, specs: Mapping[JobId, JobSpec], files: Files | None = None) -> DriftService:
    assert "file.copy" in catalog.CATALOGUE, "the ops that leave rows are there"
    return DriftService(store=store, files=files or Files(NOWHERE, clock), clock=clock, specs=lambda: specs)


def permitting(*roots: Path) -> Policy:
    """Return a policy with any command, and files below these folders beside the usual ones."""
    files = FilesRule(frozenset({"job", "shared"}), tuple(map(str, roots)))
    return Policy(granted=Grants(exec=None, files=files))
