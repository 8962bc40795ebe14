"""Read this repository for the docs tests: the files that git would hold, and what the Markdown pages say."""

from __future__ import annotations

import ast
import gc
import re
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[2]

_SKIPPED = {".git", ".venv", "data", "build", "dist", "__pycache__"}
_CODE = re.compile(r"`([^`\n]+)`")
_SHOWN = re.compile(r"^`(?P<name>jobs/[^`\n]+)`[^`\n]*\n\n```\w+\n(?P<text>.*?)^```", re.MULTILINE | re.DOTALL)
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


@cache
def tracked_files() -> tuple[Path, ...]:
    """Return what is or would be committed; without git, everything but what tools leave behind."""
    listed = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode == 0 and listed.stdout:
        paths = [ROOT / name for name in listed.stdout.split("\0") if name]
    else:
        paths = [path for path in ROOT.rglob("*") if not _is_left_behind(path)]
    return tuple(sorted(path for path in paths if path.is_file()))


def _is_left_behind(path: Path) -> bool:
    parts = path.relative_to(ROOT).parts
    return any(part in _SKIPPED or part.endswith(("_cache", ".egg-info")) for part in parts)


def pages() -> list[Path]:
    return [path for path in tracked_files() if path.suffix == ".md"]


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


@cache
def modules() -> tuple[tuple[str, ast.Module], ...]:
    """Return the name of each file of spyweb below the root, and its tree."""
    paths = sorted((ROOT / "spyweb").rglob("*.py"))
    gc.disable()  # half a million objects that stay: to search them for garbage takes five times as long as to parse
    try:
        return tuple((path.relative_to(ROOT).as_posix(), ast.parse(path.read_text("utf-8"))) for path in paths)
    finally:
        gc.freeze()
        gc.enable()


@cache
def nodes(tree: ast.AST) -> Sequence[ast.AST]:
    """Return what `ast.walk` yields; a walk takes longer than all that is done with it."""
    return list(ast.walk(tree))


def code_words(text: str) -> set[str]:
    """Return everything that a page sets as code within a line."""
    return set(_CODE.findall(_FENCE.sub("", text)))


def code_blocks(text: str, language: str) -> list[str]:
    return [body for kind, body in _FENCE.findall(text) if kind == language]


def files_of(page: str) -> list[tuple[str, str]]:
    """Return names and texts of the files that a page shows, each named by the line before it, in their order."""
    return [(found["name"], found["text"]) for found in _SHOWN.finditer(read(page))]


def file_of(page: str, name: str, number: int = 0) -> str:
    """Return the text of the file with that name; where there are several, of that one."""
    return [text for each, text in files_of(page) if PurePosixPath(each).name == name][number]
