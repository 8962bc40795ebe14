from __future__ import annotations

import pytest

from spyweb.daemon.engine_info import visible_environment

ENVIRON = {"SPYWEB_TOKEN": "t", "SPYWEB_COLOUR": "c", "HOME": "/root", "MY_SPYWEB_X": "x", "SPYWEB_": "?"}


def test_scripts_see_spyweb_variables_without_the_prefix_and_nothing_else() -> None:
    assert visible_environment(ENVIRON) == {"TOKEN": "t", "COLOUR": "c"}


def test_denied_names_are_hidden_however_they_are_written() -> None:
    assert visible_environment(ENVIRON, ["COLOUR"]) == {"TOKEN": "t"}
    assert visible_environment(ENVIRON, ["SPYWEB_COLOUR", "TOKEN"]) == {}


@pytest.mark.parametrize("deny", [(), ("TOKEN",), ("TOKEN", "COLOUR")])
@pytest.mark.parametrize("secret", ["SPYWEB_API_KEY", "SPYWEB_STORE_PASSWORD", "SPYWEB_STORE_KEY"])
def test_the_daemons_own_secrets_are_hidden_whatever_is_denied_besides(deny: tuple[str, ...], secret: str) -> None:
    environ = ENVIRON | {secret: "s"}
    assert "s" not in visible_environment(environ, deny).values()


def test_bytes_that_are_no_text_cannot_break_the_frame_that_carries_them() -> None:
    assert visible_environment({"SPYWEB_X": "a\udcff"}) == {"X": "a\ufffd"}
