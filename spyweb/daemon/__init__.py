"""Builds every part in order and takes them down in reverse: for the daemon, for one run, for a check."""

from spyweb.daemon.foreground import check_project, run_once
from spyweb.daemon.options import Options
from spyweb.daemon.serve import serve

__all__ = ["Options", "check_project", "run_once", "serve"]
