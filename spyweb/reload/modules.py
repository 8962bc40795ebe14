"""Which modules that jobs loaded have changed on disk since."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from spyweb.jobs.discover import JobFile
from spyweb.jobs.live import code_of
from spyweb.lua.session import Code
from spyweb.model import JobId

Digests = Mapping[str, str | None]  # path relative to the project root → digest, None where there was no file


def digest_of(source: bytes) -> str:
    return hashlib.sha256(source).hexdigest()


def _digest_on_disk(path: Path) -> str | None:
    try:
        return digest_of(path.read_bytes())
    except OSError:
        return None


def changed_modules(root: Path, known: Mapping[JobId, Digests]) -> dict[JobId, list[str]]:
    """The modules of each job that are no longer what the job loaded."""
    now: dict[str, str | None] = {}
    for path in {path for digests in known.values() for path in digests}:
        now[path] = _digest_on_disk(root / path)
    changed = {job: [path for path, digest in digests.items() if now[path] != digest] for job, digests in known.items()}
    return {job: paths for job, paths in changed.items() if paths}


def module_codes(root: Path, file: JobFile, paths: Sequence[str]) -> list[Code]:
    """These modules as code to be proved, in the name of the job that needs them."""
    present = [path for path in paths if (root / path).is_file()]
    return [replace(code_of(file, 0), chunk=path, source=(root / path).read_bytes()) for path in present]
