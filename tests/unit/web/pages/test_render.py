"""The frame of every page, the filters, and the files that pages need."""

from __future__ import annotations

import re
from pathlib import Path
from zoneinfo import ZoneInfo

import jinja2
import pytest

from spyweb.web.pages.frame import BAR, SETTINGS, PageFrame
from spyweb.web.pages.render import HERE
from spyweb.web.pages.site import FOLDER, renderer, static_files
from spyweb.web.pages.words import ABSENT, NBSP, Moments

NOW_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z
MARKUP = "<script>alert(1)</script>"


def make_frame(**changes: object) -> PageFrame:
    known = {"host": "nas", "version": "1.0", "moments": Moments(NOW_MS, ZoneInfo("Europe/Berlin"))}
    return PageFrame(**{**known, **changes})  # type: ignore[arg-type]


def error_page(frame: PageFrame, **values: object) -> str:
    return renderer().part("error.html", frame, {"title": "No such job", "reason": "", "close": [], **values})


def test_a_page_has_a_bar_with_every_place_and_marks_the_one_it_is() -> None:
    page = error_page(make_frame(place="state", counts={"jobs": 2}))
    for place in BAR:
        assert f">{place.words}<" in page
    assert not any(f">{tab.words}</a>" in page for tab in SETTINGS)
    settings = error_page(make_frame(place="settings", may={"admin"}, has_nodes=True, here="/maintenance?x=1"))
    for tab in SETTINGS:
        assert f">{tab.words}</a>" in settings
    assert '<a href="/maintenance" aria-current="page">' in settings
    limited = error_page(make_frame(place="settings", sees_all=False))
    assert not any(f'href="/{path}"' in limited for path in ("channels", "keys", "health"))
    assert '<a href="/state" aria-current="page">' in page
    assert '<b id="count-jobs">2</b>' in page
    assert '<b id="count-health"></b>' in page


def test_markup_of_others_is_text() -> None:
    frame = make_frame(host=MARKUP, who=MARKUP, here=MARKUP, version=MARKUP, live=MARKUP)
    page = error_page(frame, reason=MARKUP, close=[{"href": f'/"{MARKUP}', "words": MARKUP}])
    assert MARKUP not in page
    assert page.count("&lt;script&gt;") >= 8


def test_a_moment_is_an_element_that_the_browser_can_tell_in_its_own_zone() -> None:
    frame = make_frame()
    assert render("{{ 1767225600000|when }}", frame) == ('<time datetime="2026-01-01T00:00:00Z">01:00:00</time>')
    assert 'data-as="until">1\N{NO-BREAK SPACE}m' in render("{{ (1767225600000 + 60000)|countdown }}", frame)
    assert 'data-as="since">1\N{NO-BREAK SPACE}m' in render("{{ (1767225600000 - 60000)|age }}", frame)
    for ago_ms, said in ((400, "just now"), (119_000, f"1{NBSP}min ago"), (90_000_000, f"1{NBSP}d ago")):
        assert f'data-as="ago">{said}<' in render(f"{{{{ ({NOW_MS} - {ago_ms})|ago }}}}", frame)
    assert 'data-as="exact">01:00:00.000' in render("{{ 1767225600000|exact_time }}", frame)
    assert render("{{ none|when }}{{ none|countdown }}{{ none|age }}{{ none|exact_time }}", frame) == 4 * ABSENT


def test_parts_of_an_address_are_encoded() -> None:
    assert render("{{ to('jobs', 'a/b?c', 'run') }}", make_frame()) == "/jobs/a%2Fb%3Fc/run"


def test_a_value_that_is_missing_is_an_error() -> None:
    with pytest.raises(jinja2.UndefinedError):
        render("{{ nothing }}", make_frame())


def test_no_template_marks_anything_as_safe() -> None:
    for path in (HERE / "templates").iterdir():
        assert "safe" not in path.read_text(encoding="utf-8").replace("is-safe", ""), path.name


def render(source: str, frame: PageFrame) -> str:
    return renderer().pages.from_string(source).render(frame=frame)


def test_another_content_has_another_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spyweb.web.pages.site.FOLDER", tmp_path)
    (tmp_path / "style.css").write_text("a {}")
    (tmp_path / "notes.txt").write_text("not served")
    files, first = static_files.__wrapped__()
    (tmp_path / "style.css").write_text("b {}")
    assert first != static_files.__wrapped__()[1]
    assert list(files) == ["style.css"]


def test_nothing_is_loaded_from_elsewhere() -> None:
    for path in FOLDER.iterdir():
        text = path.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?:|//\w+\.\w+/|@import|url\(|\beval\b|innerHTML\s*=\s*`", text), path.name
