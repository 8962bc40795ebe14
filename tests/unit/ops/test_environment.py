from __future__ import annotations

from spyweb.ops.environment import visible_environment

ENVIRON = {"SPYWEB_TOKEN": "t", "SPYWEB_API_KEY": "k", "HOME": "/root", "MY_SPYWEB_X": "x", "SPYWEB_": "?"}


def test_scripts_see_spyweb_variables_without_the_prefix_and_nothing_else() -> None:
    assert visible_environment(ENVIRON) == {"TOKEN": "t", "API_KEY": "k"}


def test_denied_names_are_hidden_however_they_are_written() -> None:
    assert visible_environment(ENVIRON, ["API_KEY"]) == {"TOKEN": "t"}
    assert visible_environment(ENVIRON, ["SPYWEB_API_KEY", "TOKEN"]) == {}


def test_bytes_that_are_no_text_cannot_break_the_frame_that_carries_them() -> None:
    assert visible_environment({"SPYWEB_X": "a\udcff"}) == {"X": "a\ufffd"}
