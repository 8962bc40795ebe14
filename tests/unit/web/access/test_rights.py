"""Rights and what comes with them."""

from __future__ import annotations

from spyweb.web.access.rights import ALL, Right, rights_of


def test_each_right_has_reading_with_it_and_admin_has_all() -> None:
    assert rights_of(Right.READ) == {Right.READ}
    assert rights_of(Right.RUN) == {Right.READ, Right.RUN}
    assert rights_of(Right.RUN, Right.STATE) == {Right.READ, Right.RUN, Right.STATE}
    assert rights_of(Right.ADMIN) == ALL == set(Right)
