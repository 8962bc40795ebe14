"""The tables of pages and actions."""

from __future__ import annotations

from spyweb.dashboard.render import HERE
from spyweb.web.access.rights import Right
from spyweb.web.pages.pages import ACTIONS, PAGES


def test_every_page_has_an_address_of_its_own_and_a_template() -> None:
    assert len({page.path for page in PAGES}) == len(PAGES)
    for page in PAGES:
        assert (HERE / "templates" / page.template).is_file(), page.template
        assert page.show.__doc__


def test_no_address_is_below_the_api() -> None:
    for path in [*(page.path for page in PAGES), *(each.path for each in ACTIONS)]:
        assert not path.startswith(("api", "static/", "/"))


def test_whatever_changes_something_needs_more_than_to_look() -> None:
    for each in ACTIONS:
        assert each.right is not Right.READ or each.path == "sign-out"
        assert each.do.__doc__
