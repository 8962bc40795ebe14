"""Choose the colours of the pages: dark, light, or as the system has them."""

from __future__ import annotations

from aiohttp import web

from spyweb.web.access.rights import PUBLIC
from spyweb.web.pages.page import THEME, THEMES, Asked, action, lead_to

A_YEAR_S = 31_536_000


@action("theme", right=PUBLIC)
async def choose_theme(asked: Asked) -> web.Response:
    """Keep the choice in a cookie, so that a page comes in the right colours from its first byte on."""
    chosen = asked.form.get("theme", "")
    away = lead_to(asked.back())
    if chosen in THEMES:
        away.set_cookie(THEME, chosen, path=asked.base, max_age=A_YEAR_S, samesite="Lax", httponly=True)
    else:
        away.del_cookie(THEME, path=asked.base)
    return away
