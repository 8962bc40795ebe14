from __future__ import annotations

import pytest

from spyweb.lua.nursery import describe_exit, zygote_environment


@pytest.mark.parametrize(
    ("code", "words"),
    [(0, "it ended with exit code 0"), (-6, "it was ended by SIGABRT"), (-9, "it was ended by SIGKILL"), (-99, "99")],
)
def test_an_exit_is_told_in_words(code: int, words: str) -> None:
    assert words in describe_exit(code)


def test_a_zygote_inherits_nothing_that_it_does_not_need(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPYWEB_TOKEN", "secret")
    monkeypatch.setenv("PYTHONHOME", "/opt/python")

    environment = zygote_environment("Europe/Berlin")

    assert environment["TZ"] == "Europe/Berlin"
    assert environment["PYTHONHOME"] == "/opt/python"
    assert "SPYWEB_TOKEN" not in environment
