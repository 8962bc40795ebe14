"""Keep templates as byte code where Python keeps that of modules: compiling those of one page takes a while.

Who may write there may write the templates and the modules too, so nothing is trusted that was not trusted before.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from importlib.util import cache_from_source
from pathlib import Path

import jinja2
from jinja2.bccache import Bucket

from spyweb import __version__


class CompiledTemplates(jinja2.FileSystemBytecodeCache):
    """Holds the byte code of templates in files; where none can be written, templates are compiled each time."""

    def __init__(self, beside: Path) -> None:
        self._folder = Path(cache_from_source(str(beside / "any.py"))).parent
        # Byte code depends on what compiles it, and on how it is told to, not only on the template.
        super().__init__(str(self._folder), f"%s.jinja2-{jinja2.__version__}.spyweb-{__version__}.pyc")

    def load_bytecode(self, bucket: Bucket) -> None:
        with suppress(OSError):
            super().load_bytecode(bucket)

    def dump_bytecode(self, bucket: Bucket) -> None:
        if sys.dont_write_bytecode:
            return
        with suppress(OSError):
            self._folder.mkdir(exist_ok=True)
            super().dump_bytecode(bucket)
