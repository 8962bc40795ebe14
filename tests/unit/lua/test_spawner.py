from __future__ import annotations

import pytest

from spyweb.lua.spawner import zygote_environment


def test_a_zygote_inherits_nothing_that_it_does_not_need(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPYWEB_TOKEN", "secret")
    monkeypatch.setenv("PYTHONHOME", "/opt/python")

    environment = zygote_environment("Europe/Berlin")

    assert environment["TZ"] == "Europe/Berlin"
    assert environment["PYTHONHOME"] == "/opt/python"
    assert "SPYWEB_TOKEN" not in environment
