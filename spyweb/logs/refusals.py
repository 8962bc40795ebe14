"""Log that the store refused something.

A damaged database refuses everything from then on, and its damage has been logged once: every other place that meets it
logs at the level debug.
"""

from __future__ import annotations

import structlog

from spyweb.errors import StoreCorrupt

log = structlog.get_logger()


def tell_refusal(event: str, error: BaseException, **about: object) -> None:
    """Log a refusal, with a reason even if the error has no text."""
    tell = log.debug if isinstance(error, StoreCorrupt) else log.error
    tell(event, reason=str(error) or type(error).__name__, **about)
