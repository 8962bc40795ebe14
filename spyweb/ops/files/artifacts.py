"""Keep files that tasks have made, a folder for each run, and give them back to other tasks.

What is kept is copied: a script may change its own files afterwards.  Everything here waits for the disk: call it in a
thread.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import partial
from io import FileIO
from pathlib import Path

from spyweb.files import READ, Forbidden, RealPath, open_folder, replace, resolve
from spyweb.limits import ARTIFACTS_BYTES, ARTIFACTS_FILES
from spyweb.logs.job import NAME as LOG_NAME
from spyweb.model import MIB, JobId, RunId

FOLDER = "artifacts"  # in the data directory
OF_SPYWEB = (".lua", ".sloth", ".toml")  # files that spyweb loads: giving one back would undo an edit


class Artifacts:
    def __init__(self, root: Path, folder: Path) -> None:
        self._root = root  # of the project
        self._folder = folder

    def keep(self, job: JobId, run: RunId, folder: str, patterns: Sequence[str]) -> list[str]:
        """Copy the files of a job's folder that match; return their names.  Raises Forbidden, OSError.

        Each appears whole or not at all, and replaces one of its name.
        """
        target, names, size = f"{job}/{run}", [], 0
        self._folder.mkdir(parents=True, exist_ok=True)
        for name, file in _files_below(self._root, folder):
            with file:
                if not any(fnmatchcase(name, pattern) for pattern in patterns):
                    continue
                names.append(name)
                size += os.fstat(file.fileno()).st_size
                if len(names) > ARTIFACTS_FILES or size > ARTIFACTS_BYTES:
                    most = f"{ARTIFACTS_FILES} files and {ARTIFACTS_BYTES // MIB} MB"
                    raise Forbidden(f"more than {most} match {', '.join(patterns)}")
                _put(resolve(self._folder, target, name), file)
        for pattern in patterns:
            if not any(fnmatchcase(name, pattern) for name in names):
                raise Forbidden(f"no file in {folder} matches '{pattern}'")
        return names

    def give_back(self, job: JobId, run: RunId, folder: str, patterns: Sequence[str]) -> list[str]:
        """Copy a run's matching artifacts into the job's folder; return the names.  Raises Forbidden, OSError."""
        source = self._of(job, run)
        kept = list_files(source)
        for pattern in patterns:
            if not any(fnmatchcase(name, pattern) for name in kept):
                raise Forbidden(f"no artifact of this run matches '{pattern}'")
        names = [name for name in kept if any(fnmatchcase(name, pattern) for pattern in patterns)]
        for name in names:
            with FileIO(source / name) as file:
                _put(resolve(self._root, folder, name), file)
        return names

    def carry_over(self, job: JobId, earlier: Sequence[RunId], run: RunId) -> None:
        """Give a run the artifacts of the runs that it continues.  Raises OSError."""
        for each in earlier:
            source, target = self._of(job, each), self._of(job, run)
            for name in list_files(source):
                place = target / name
                place.parent.mkdir(parents=True, exist_ok=True)
                place.unlink(missing_ok=True)
                os.link(source / name, place)  # neither is ever changed, only replaced

    def prune(self, keep: int) -> int:
        """Delete the artifacts of all but the newest runs of each job; return the number of runs."""
        deleted = 0
        for job in _folders(self._folder):
            runs = sorted((int(folder.name) for folder in _folders(job) if folder.name.isdecimal()), reverse=True)
            for run in runs[keep:]:
                shutil.rmtree(job / str(run), ignore_errors=True)
                deleted += 1
        return deleted

    def _of(self, job: JobId, run: RunId) -> Path:
        return self._folder / job / str(run)


def list_files(folder: Path) -> list[str]:
    """Return the names of the files below a folder, sorted; none where there is no such folder."""
    found = [
        os.path.relpath(os.path.join(place, name), folder)
        for place, _, names in os.walk(folder)
        for name in names
        if not name.startswith(".")
    ]
    return sorted(found)


def _put(path: RealPath, file: FileIO) -> None:
    """Copy a file to a place, whose folder is made if it is missing."""
    folder = open_folder(RealPath(path.top, path.steps[:-1]), make=0o777)
    try:
        replace(folder, path.steps[-1], iter(partial(file.read, MIB), b""), is_durable=False, is_alone=False)
    finally:
        os.close(folder)


def _folders(folder: Path) -> list[Path]:
    with suppress(FileNotFoundError):
        return [Path(entry.path) for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False)]
    return []


def _files_below(root: Path, folder: str) -> Iterator[tuple[str, FileIO]]:
    """Yield the plain files of a job's folder, open; the caller closes each.  No link is followed."""
    try:
        opened = open_folder(resolve(root, folder))
    except (FileNotFoundError, NotADirectoryError):
        return
    try:
        for place, folders, names, descriptor in os.fwalk(".", dir_fd=opened, follow_symlinks=False):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            for name in sorted(names):
                path = os.path.normpath(os.path.join(place, name))
                if name.startswith(".") or path.startswith(LOG_NAME) or name.endswith(OF_SPYWEB):
                    continue
                file = _open_plain(name, descriptor)
                if file is not None:
                    yield path, file
    finally:
        os.close(opened)


def _open_plain(name: str, folder: int) -> FileIO | None:
    try:
        file = FileIO(name, opener=lambda *_: os.open(name, READ, dir_fd=folder))
    except OSError:
        return None  # a link, or it has just gone
    status = os.fstat(file.fileno())
    if stat.S_ISREG(status.st_mode) and status.st_nlink == 1:
        return file
    file.close()
    return None
