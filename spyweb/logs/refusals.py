"""Say in the log that the store refused something.

A database that is damaged refuses everything to everybody from then on, and has said so itself: every other place that
meets it logs at the level debug.
"""

from __future__ import annotations

import structlog

from spyweb.errors import StoreCorrupt

log = structlog.get_logger()


def tell_refusal(event: str, error: BaseException, **about: object) -> None:
    """Log a refusal.  Its reason is never empty, though some of Python's errors have no text."""
    tell = log.debug if isinstance(error, StoreCorrupt) else log.error
    tell(event, reason=str(error) or type(error).__name__, **about)
