"""Write the generated parts of docs/reference/api.md anew: `python -m spyweb.web.api`, in the repository."""

from __future__ import annotations

from pathlib import Path

from spyweb.web.api.reference import PAGE, renewed

page = Path(PAGE)
page.write_text(renewed(page.read_text(encoding="utf-8")), encoding="utf-8")
