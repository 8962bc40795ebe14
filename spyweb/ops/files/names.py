"""Say which file a script's name means, and which names it may not use: text alone, no file is touched."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence

from msgspec import Struct

from spyweb.files import Forbidden
from spyweb.logs.job import NAME as LOG_NAME
from spyweb.ops.rules.values import shown
from spyweb.permissions.policy import JOB, SHARED

TEXT_KINDS = frozenset({"csv", "json", "jsonl", "txt", "log"})
BINARY_KINDS = TEXT_KINDS | frozenset(
    {"png", "jpg", "jpeg", "gif", "svg", "webp", "bmp", "ico", "woff", "woff2", "ttf", "otf", "pdf", "zip"}
)
LONGEST_STEP = 255  # bytes, the limit of the usual file systems
LONGEST_STEM = 200  # bytes of a file's name, which leaves room for a time stamp
MOST_STEPS = 32
LOADED = ("config.toml", "jobs.toml", LOG_NAME)  # names that are spyweb's own, and never written
LOADED_ENDINGS = (".lua", ".sloth")


class FilePlace(Struct, frozen=True):
    """The place that a name means to a job; the last step is the file or folder."""

    top: str  # a folder, absolute: the project, or a root that is permitted
    base: str  # from there to the job's folder or `shared`, which are made if they are missing; empty: it is the top
    steps: tuple[str, ...]

    @property
    def path(self) -> str:
        return "/".join(self.steps)

    @property
    def above(self) -> str:
        return "/".join(self.steps[:-1])

    @property
    def name(self) -> str:
        return self.steps[-1]


def find_place(
    path: bytes, top: str, folder: str, *, root_of: Callable[[str], str], permit: Callable[[str], None]
) -> FilePlace:
    """Return the place that a name means to a job: below its folder, below `shared/`, or an absolute path.

    `root_of` gives the permitted root of an absolute path, `permit` is asked for the other two; either raises what
    refuses.  Raises Forbidden for a name that nobody may use.
    """
    if path.startswith(b"/"):
        steps = steps_of(path.lstrip(b"/"))
        root = root_of("/" + "/".join(steps))
        below = steps[len([step for step in root.split("/") if step]) :]
        if not below:
            raise Forbidden("it is the whole folder that is permitted")
        return FilePlace(root or "/", "", below)
    steps = steps_of(path)
    if steps[0] == SHARED and len(steps) > 1:
        permit(SHARED)
        return FilePlace(top, SHARED, steps[1:])
    permit(JOB)
    return FilePlace(top, folder, steps)


def places_of(top: str, folder: str, name: bytes, kinds: frozenset[str]) -> tuple[FilePlace, FilePlace]:
    """Return the place that a name is written to, and where else it is looked for; both may be the shared folder.

    Raises Forbidden.
    """
    steps = steps_of(name)
    stem, _, kind = steps[-1].rpartition(".")
    if not stem or kind.lower() not in kinds:
        raise Forbidden(f"a name that ends in one of these expected: {', '.join(sorted(kinds))}")
    if steps[0] == SHARED and len(steps) > 1:
        shared = FilePlace(top, SHARED, steps[1:])
        return shared, shared
    return FilePlace(top, folder, steps), FilePlace(top, SHARED, steps)


def steps_of(name: bytes) -> tuple[str, ...]:
    """Return the folders and the file in a name, none of which leads up.  Raises Forbidden."""
    try:
        text = name.decode("utf-8")
    except UnicodeDecodeError:
        raise Forbidden("a file's name must be UTF-8") from None
    if not text.isprintable():
        raise Forbidden("control characters are not allowed in it")
    if text.startswith(("/", "\\")) or text[1:2] == ":":
        raise Forbidden("an absolute path is not allowed")
    if ".." in text.replace("\\", "/").split("/"):
        raise Forbidden("'..' is not allowed in it")
    if "\\" in text:
        raise Forbidden("'\\' is not allowed in it: folders are separated by '/'")
    return _checked_lengths(tuple(step for step in text.split("/") if step not in ("", ".")), text)


def check_names(steps: Sequence[str]) -> None:
    """Raise Forbidden where spyweb would load a step as one of its own files.

    A folder of such a name is as bad: the jobs around it do not load any more.
    """
    if any(name.lower() in LOADED or name.lower().endswith(LOADED_ENDINGS) for name in steps):
        raise Forbidden("spyweb itself loads, or writes, files of this name")


def _checked_lengths(steps: tuple[str, ...], text: str) -> tuple[str, ...]:
    if not steps or text.endswith(("/", "/.")):
        raise Forbidden("the name of a file expected")
    longest = max(len(step.encode()) for step in steps)
    if len(steps) > MOST_STEPS or longest > LONGEST_STEP or len(steps[-1].encode()) > LONGEST_STEM:
        raise Forbidden(
            f"it is too long: at most {MOST_STEPS} steps, and a file's name of {LONGEST_STEM} bytes expected"
        )
    return steps


def reason_of(error: Exception) -> str:
    """Return the reason of a failure with a file, as text for a script."""
    if isinstance(error, OSError) and error.errno == errno.ELOOP:
        return "a link was put there"
    return getattr(error, "strerror", None) or str(error)


def complaint(function: str, name: bytes, error: Exception) -> str:
    return f"{function}: '{shown(name)}': {reason_of(error)}"
