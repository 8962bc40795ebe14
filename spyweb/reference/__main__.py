"""Write the generated parts of the reference pages anew: `python -m spyweb.reference`, in the repository."""

from __future__ import annotations

from pathlib import Path

from spyweb.reference.pages import PAGES, renewed
from spyweb.reference.schema import EXAMPLE, example

for page in map(Path, PAGES):
    page.write_text(renewed(page.read_text(encoding="utf-8")), encoding="utf-8")
Path(EXAMPLE).write_text(example(), encoding="utf-8")
