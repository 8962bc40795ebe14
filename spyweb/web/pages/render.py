"""Render the pages of the dashboard: templates, filters and the frame.

Everything from scripts, pages and clients is text: all values are escaped, and a template marks nothing as safe.
Jinja2 is slow to import and takes memory, so this module is imported at the first page, in a thread (web/pages/).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import jinja2
from jinja2.runtime import Context
from markupsafe import Markup, escape

from spyweb.web.pages import words
from spyweb.web.pages.charts import KINDS
from spyweb.web.pages.frame import BAR, SETTINGS, PageFrame, to
from spyweb.web.pages.words import Moments

HERE = Path(__file__).parent
SUBJECTS = HERE.parents[1] / "subjects"  # each has its templates beside its code


class Renderer:
    """Makes pages, and parts of them, from the templates."""

    def __init__(self, static: Callable[[str], str]) -> None:
        """Take what gives the address of a static file."""
        self.pages = jinja2.Environment(
            loader=jinja2.FileSystemLoader([HERE / "templates", *sorted(SUBJECTS.glob("*/templates"))]),
            autoescape=True,
            auto_reload=False,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            cache_size=-1,
        )
        self.pages.filters.update(FILTERS)
        kinds = [(letter, heights, word) for letter, (heights, word) in KINDS.items()]
        self.pages.globals.update(hide=hide, to=to, static=static, bar=BAR, tabs=SETTINGS, kinds=kinds)
        self.pages.globals.update(pieces_of=words.pieces_of)

    def part(self, template: str, frame: PageFrame, values: Mapping[str, object]) -> Markup:
        """Render a page, or a part of one, as it is put into a page, or fetched when it has changed."""
        return Markup(self.pages.get_template(template).render({**values, "frame": frame}))


def hide(part: Markup) -> Markup:
    """Return a part with the attribute `hidden`."""
    return Markup(part.replace(" ", " hidden ", 1))  # behind the name of its element


TimeFilter = Callable[[Context, int | None], str]


def time_filter(name: str, tell: Callable[[Moments, int], str]) -> TimeFilter:
    """Make a filter that shows a moment as an element; times.js updates its text by this name."""
    data_as = Markup(' data-as="{}"').format(name) if name else Markup()

    @jinja2.pass_context
    def show(context: Context, ms: int | None) -> str:
        if ms is None:
            return words.ABSENT
        moments: Moments = context["frame"].moments
        iso, text = escape(words.iso_moment(ms)), escape(tell(moments, ms))
        return Markup(f'<time datetime="{iso}"{data_as}>{text}</time>')  # there is one in each row: format() is slower

    return show


def tell_soon(moments: Moments, ms: int) -> str:
    """Return how long it is until a moment, within a sentence: `in 9 s`, or `now`."""
    until = moments.until(ms)
    return until if until == "now" else f"in {until}"


FILTERS = {
    "when": time_filter("", Moments.show),
    "exact_time": time_filter("exact", Moments.show_exactly),
    "clock": time_filter("clock", Moments.show_clock),
    "day": time_filter("day", Moments.show_day),
    "countdown": time_filter("until", Moments.until),
    "soon": time_filter("in", tell_soon),
    "age": time_filter("since", Moments.since),
    "ago": time_filter("ago", Moments.ago),
    "duration": words.show_duration,
    "count": words.show_count,
    "counted": words.show_counted,
    "size": words.show_size,
    "share": words.show_share,
}
