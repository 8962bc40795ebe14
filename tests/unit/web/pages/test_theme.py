"""The colours of the pages."""

from __future__ import annotations

from tests.fakes.dashboard import dashboard, get_page


async def test_a_choice_is_kept_in_a_cookie() -> None:
    async with dashboard() as client:
        async with client.post("/theme", data={"theme": "dark", "back": "/?q=x"}, allow_redirects=False) as answer:
            assert (answer.status, answer.headers["Location"]) == (303, "/?q=x")
            cookie = answer.cookies["spyweb_theme"]
            assert (cookie.value, cookie["samesite"], cookie["httponly"], cookie["path"]) == ("dark", "Lax", True, "/")
        _, page = await get_page(client, "/", Cookie="spyweb_theme=dark")
        assert '<html lang="en" data-theme="dark">' in page


async def test_what_is_no_theme_is_as_the_system_has_it() -> None:
    async with dashboard() as client:
        assert '<html lang="en">' in (await get_page(client, "/", Cookie='spyweb_theme="><b>'))[1]
        async with client.post("/theme", data={"theme": "auto"}, allow_redirects=False) as answer:
            assert answer.cookies["spyweb_theme"]["max-age"] == "0"
