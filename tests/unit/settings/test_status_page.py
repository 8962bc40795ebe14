"""`[status_page]`: each bad thing gets one line, and the page never hides an address of spyweb."""

from __future__ import annotations

from pathlib import Path

import pytest

from spyweb.daemon.subjects import ADDRESSES
from spyweb.settings.load import examine_settings
from spyweb.settings.sections import RESERVED, StatusPageSettings

RIGHT = 'groups = [{ name = "Web", jobs = ["site"] }]'


def read(root: Path, *lines: str) -> tuple[StatusPageSettings | None, list[str]]:
    (root / "config.toml").write_text("\n".join(["[status_page]", *lines]))
    settings, problems = examine_settings(root, environ={}, flags={})
    return settings.status_page, [str(problem) for problem in problems]


def test_there_is_no_page_without_the_section_and_it_is_not_public_until_that_is_said(tmp_path: Path) -> None:
    assert examine_settings(tmp_path, environ={}, flags={})[0].status_page is None
    page, problems = read(tmp_path, RIGHT)
    assert problems == []
    assert page
    assert (page.public, page.path, page.title) == (False, "/status", "Status")
    assert page.groups == (("Web", ("site",)),)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("", "1: status_page.groups: is required, or tags: a status page shows only jobs that are named"),
        (
            'groups = [{ name = "Web", jobs = ["a"] }, { name = "web", jobs = ["b"] }]',
            "2: status_page.groups[2].name: another group has this name",
        ),
        ('groups = [{ name = "Web" }]', "2: status_page.groups[1].jobs: is required"),
        (f'{RIGHT}\npath = "status"', '3: status_page.path: expected a path such as "/status", without a slash'),
        (f'{RIGHT}\npath = "/status/"', '3: status_page.path: expected a path such as "/status", without a slash'),
        (f'{RIGHT}\npath = "/a/../b"', '3: status_page.path: expected a path such as "/status", without a slash'),
        (f'{RIGHT}\npath = "/"', '3: status_page.path: expected a path such as "/status", without a slash'),
        (f'{RIGHT}\ntitel = "x"', '3: status_page.titel: unknown key; did you mean "title"?'),
    ],
)
def test_each_bad_thing_gets_one_line(tmp_path: Path, line: str, problem: str) -> None:
    (found,) = read(tmp_path, line)[1]
    assert found.startswith(f"config.toml:{problem}")


def test_the_page_lies_at_no_address_of_spyweb(tmp_path: Path) -> None:
    paths = [*(each.path for each in ADDRESSES.routes), *(each.path for each in ADDRESSES.pages)]
    every = {path.split("/")[1] for path in paths} - {""}
    assert every == RESERVED
    for name in ("jobs", "api"):
        (problem,) = read(tmp_path, RIGHT, f'path = "/{name}/x"')[1]
        assert f'"/{name}" is an address of spyweb itself: expected another, such as "/status"' in problem
