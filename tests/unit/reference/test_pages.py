from __future__ import annotations

import pytest

from spyweb.reference.pages import parts_of, renewed

PAGE = """# Files

By hand.

<!-- generated: functions files -->
whatever was here before
<!-- end -->

By hand, too.
"""


def test_only_what_is_between_the_marks_is_written_anew() -> None:
    page = renewed(PAGE)
    assert page.startswith("# Files\n\nBy hand.\n\n<!-- generated: functions files -->\n\n| function | returns | |\n")
    assert page.endswith("\n<!-- end -->\n\nBy hand, too.\n")
    assert "| `fs_read(filename)` | `string?` | Return the text of a file" in page
    assert "whatever" not in page


def test_what_is_up_to_date_stays_as_it_is() -> None:
    assert renewed(renewed(PAGE)) == renewed(PAGE)


def test_functions_that_wait_are_said_to() -> None:
    page = renewed("<!-- generated: functions files, environment and tables -->\n<!-- end -->")
    assert "All of these *wait*. A name that leads out" in page
    assert "`require(name)` | `any` | Return the module" in page
    assert "executed once in a VM. *Waits.* |" in page


def test_a_table_is_shown_field_by_field() -> None:
    page = renewed("<!-- generated: table HttpError -->\n<!-- end -->")
    assert "`HttpError`: why nothing came back.\n" in page
    assert "| `error` | `string` | the error's text |" in page
    assert '| `kind` | `"dns"\\|"connect"' in page, "a bar would end the cell"


def test_a_hook_says_what_nil_and_an_error_do() -> None:
    page = renewed("<!-- generated: hooks filter_item -->\n<!-- end -->")
    assert "### `filter_item(item, ctx)`" in page
    assert "`item` is an `Item`." in page
    assert "| nil, false | this item is dropped |" in page
    assert 'under `on_hook_error = "fail"` the cycle fails |' in page


def test_a_hook_at_the_end_of_a_cycle_can_not_fail_it() -> None:
    page = renewed("<!-- generated: hooks on_finally -->\n<!-- end -->")
    assert "| an error | logged only: the cycle has ended |" in page


@pytest.mark.parametrize("part", ["nonsense x", "functions nonsense", "table Nonsense", "hooks nonsense"])
def test_a_part_that_nobody_can_make_is_refused(part: str) -> None:
    with pytest.raises(ValueError, match=r"there is no|there are no"):
        renewed(f"<!-- generated: {part} -->\n<!-- end -->")


def test_the_parts_of_a_page_are_known() -> None:
    page = "<!-- generated: table Ctx, Trigger -->\n<!-- end -->\n" + PAGE
    assert parts_of(page) == [("table", "Ctx"), ("table", "Trigger"), ("functions", "files")]
