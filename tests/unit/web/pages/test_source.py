"""Files of a job, in colours."""

from __future__ import annotations

import re

from tests.fakes.dashboard import dashboard, get_page, page_of


async def test_a_whole_file_is_shown_line_by_line() -> None:
    page = await page_of("/jobs/prices/source?line=2")
    assert re.findall(r'id="L(\d)"', page) == ["1", "2"]
    assert '<span class="kw">local</span>' in page
    assert '<span id="L2" class="here">' in page


async def test_no_other_file_is_shown() -> None:
    async with dashboard() as client:
        for file in ("../../etc/passwd", "config.toml"):
            assert (await get_page(client, f"/jobs/prices/source?file={file}"))[0] == 404
        assert (await get_page(client, "/jobs/prices/source?line=x"))[0] == 400
