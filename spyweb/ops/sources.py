"""Find, read and remember the Lua modules that scripts require, in the job's folder or the project.

For each generation of a job it remembers which files were read, with their content, and which were looked for but
missing, so that an edit, a deletion and a new file that would be found first each reload only that job, and a run that
goes on meanwhile requires what belongs to its version.  Files are read in threads; a file that is not a plain file, is
too large, or is Lua bytecode is refused.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import re
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from io import FileIO
from pathlib import Path, PurePosixPath
from weakref import WeakValueDictionary

from msgspec import Struct

from spyweb.errors import OpError
from spyweb.files import READ, Forbidden, open_file, resolve
from spyweb.model import MIB, JobId

LARGEST = 4 * MIB  # bytes of one module
MOST_PATHS = 4096  # remembered for one generation: a script that invents names must not fill the memory
LONGEST_NAME = 255
_APART = {"/", "\\", ":"}
BYTECODE = b"\x1b"
REQUIRED = re.compile(rb"\brequire\s*+(?:\(\s*+)?[\"']([^\"'\n]++)[\"']")  # a module that is named where it is required


class ModuleText(Struct, frozen=True, eq=False, weakref=True):
    """The content of a file; what several jobs have read is kept once."""

    digest: str
    source: bytes


REFUSED = ModuleText("", b"")  # of a file that was refused: no content has that digest, so any edit is noticed

Dependencies = dict[str, ModuleText | None]


class Module(Struct, frozen=True, kw_only=True):
    path: str  # relative to the project root
    source: bytes


def digest_of(source: bytes) -> str:
    """Return the digest that `dependencies` has for a file, to compare a later content with."""
    return hashlib.blake2b(source, digest_size=16).hexdigest()


class Sources:
    """The modules under one project root."""

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()
        self._read: dict[JobId, dict[int, Dependencies]] = {}
        self._texts: WeakValueDictionary[str, ModuleText] = WeakValueDictionary()

    def dependencies(self, job: JobId, generation: int) -> Mapping[str, str | None]:
        """Return path relative to the root → digest, that of REFUSED, or None for a path where nothing was found."""
        read = self._read.get(job, {}).get(generation, {})
        return {path: None if text is None else text.digest for path, text in read.items()}

    def forget(self, job: JobId, generation: int) -> None:
        """Forget a generation, which is retired."""
        self.keep_only(job, self._read.get(job, {}).keys() - {generation})

    def keep_only(self, job: JobId, generations: Collection[int]) -> None:
        """Forget all other generations of a job."""
        kept = {number: read for number, read in self._read.pop(job, {}).items() if number in generations}
        if kept:
            self._read[job] = kept

    def changed(self, job: JobId, generation: int) -> list[str]:
        """Return the paths whose files have changed since the generation read them.

        Reads files: call it in a thread.
        """
        return self.differing(self.dependencies(job, generation))

    def differing(self, digests: Mapping[str, str | None]) -> list[str]:
        """Return the paths whose files have other digests now.  Reads files: call it in a thread."""
        return [path for path, digest in digests.items() if self._standing(path) != digest]

    def _standing(self, path: str) -> str | None:
        try:
            source = self.read(path)
        except OpError:
            return REFUSED.digest
        return None if source is None else digest_of(source)

    async def foresee(self, job: JobId, generation: int, folder: str, sources: Iterable[bytes]) -> None:
        """Read the modules that these sources require, directly or through others: those of the generation."""
        self.forget(job, generation)
        names = [name for source in sources for name in REQUIRED.findall(source)]
        seen: set[bytes] = set()
        while names:
            name = names.pop()
            if name in seen:
                continue
            seen.add(name)
            with suppress(OpError):  # raised when it is required
                module = await self.find(job, generation, folder, name)
                names += REQUIRED.findall(module.source) if module else ()

    async def find(self, job: JobId, generation: int, folder: str, name: bytes) -> Module | None:
        """Return the module of that name as the generation first found it, or None.

        Raises OpError when it is refused.
        """
        candidates = [str(path) for path in candidates_of(folder, name)]
        known = self._read.setdefault(job, {}).setdefault(generation, {})
        if len(known) + len(candidates) > MOST_PATHS:
            raise OpError(f"this job has looked for too many modules ({len(known)} files)")
        seen, found = await asyncio.to_thread(self._search, candidates, known)
        for path, text in seen.items():
            known[path] = text if text in (None, REFUSED) else self._texts.setdefault(text.digest, text)
        if isinstance(found, OpError):
            raise found
        return found

    def _search(
        self, candidates: list[str], known: Mapping[str, ModuleText | None]
    ) -> tuple[Dependencies, Module | OpError | None]:
        """Check each place where a module may be; return the files seen, and the module or why it is refused."""
        seen: Dependencies = {}
        for path in candidates:
            text = known.get(path, REFUSED)
            if text is REFUSED:  # or not read yet
                try:
                    source = self.read(path)
                except OpError as refusal:
                    return seen | {path: REFUSED}, refusal
                text = None if source is None else ModuleText(digest_of(source), source)
            seen[path] = text
            if text is not None:
                return seen, Module(path=path, source=text.source)
        return seen, None

    def read(self, path: str) -> bytes | None:
        """Return the content of a file, or None when there is none.  Raises OpError when it is refused."""
        try:
            with FileIO(path, opener=lambda *_: open_file(resolve(self._root, "", path), READ)) as file:
                if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    raise IsADirectoryError(errno.EISDIR, "")  # as FileIO does of a folder
                source = file.read(LARGEST + 1)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except Forbidden:
            raise OpError(f"{path} leads out of the project") from None
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:  # such a file can't exist
                return None
            is_folder = error.errno == errno.EISDIR
            raise OpError(
                f"{path} is not a plain file" if is_folder else f"{path}: {error.strerror or error}"
            ) from error
        if len(source) > LARGEST:
            raise OpError(f"{path} is larger than {LARGEST // MIB} MB")
        if source.startswith(BYTECODE):
            raise OpError(f"{path} is Lua bytecode; only text is loaded")
        return source


def candidates_of(folder: str, name: bytes) -> Iterator[PurePosixPath]:
    """Yield where a module may be, in order: the job's folder before the root, NAME.lua before NAME/init.lua."""
    try:
        text = name.decode("utf-8")
    except UnicodeDecodeError:
        raise OpError("a module's name must be UTF-8") from None
    parts = text.split(".")  # none of them can lead up: it holds no dot and no slash
    if len(name) > LONGEST_NAME or not all(part.isprintable() and part and not _APART & set(part) for part in parts):
        raise OpError(f"bad module name '{text[:LONGEST_NAME]}': words with dots between them expected")
    for place in dict.fromkeys((PurePosixPath(folder), PurePosixPath())):
        yield place.joinpath(*parts[:-1], parts[-1] + ".lua")
        yield place.joinpath(*parts, "init.lua")
