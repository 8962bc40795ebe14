from __future__ import annotations

from pathlib import Path

from spyweb.settings.sections import ServerSettings, StoreSettings


def test_the_store_s_path_is_what_its_url_names() -> None:
    assert StoreSettings(url="sqlite:////var/lib/spyweb.db").path == Path("/var/lib/spyweb.db")


def test_an_api_key_is_not_shown() -> None:
    assert "secret" not in repr(ServerSettings(api_key="secret"))
