"""What a sender of requests may see."""

from __future__ import annotations

from spyweb.web.access.principal import NOBODY, SOCKET, Principal
from spyweb.web.access.rights import Right


def test_without_patterns_every_job_may_be_seen() -> None:
    assert SOCKET.may_see("prices")


def test_with_patterns_only_jobs_that_match_one() -> None:
    limited = Principal(name="a", rights=frozenset(), source="key", jobs=("price*", "backup"))
    assert [job for job in ("prices", "backup", "backups", "Prices") if limited.may_see(job)] == ["prices", "backup"]


def test_nobody_may_only_what_needs_no_right() -> None:
    assert NOBODY.may(None)
    assert not NOBODY.may(Right.READ)
    assert SOCKET.may(Right.ADMIN)
