"""`python -m spyweb.daemon --root DIR --flags JSON`: the daemon's process.

`spyweb start` becomes this one, so that neither typer nor rich stays in memory.
"""

from __future__ import annotations

import sys

sys.modules["rich"] = None  # type: ignore[assignment]  # structlog loads it where it finds it: 6 MB for nothing

from spyweb.daemon.process import main  # noqa: E402 - after the line above

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
