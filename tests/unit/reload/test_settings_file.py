from __future__ import annotations

from pathlib import Path

import pytest

from spyweb.reload.settings_file import SECTIONS, waiting_for_a_start
from spyweb.settings import Settings, load_settings


def settings(root: Path, text: str) -> Settings:
    (root / "config.toml").write_text(text)
    return load_settings(root, environ={}, flags={})


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("[server]\nport = 1\n", ["server.port"]),
        ('[daemon]\nshutdown_grace = "1s"\nlog_level = "debug"\n', ["daemon.shutdown_grace", "daemon.log_level"]),
        ('[daemon]\ndefault_interval = "1s"\n[state.history]\nstate = 3\n[runs]\nkeep = 1\n', []),
        ('[defaults]\ntimeout = "1s"\n[jobs.a]\nenabled = false\n', []),
        ("[http]\ndeny_private = true\n[security]\nenv_deny = ['A']\n", ["http.deny_private", "security.env_deny"]),
    ],
)
def test_those_that_need_a_start_are_named_as_in_the_file(tmp_path: Path, text: str, names: list[str]) -> None:
    before, now = settings(tmp_path, "# nothing\n"), settings(tmp_path, text)
    assert waiting_for_a_start(before, now) == names
    assert waiting_for_a_start(now, now) == []


def test_every_section_is_there(tmp_path: Path) -> None:
    assert all(hasattr(settings(tmp_path, "# nothing\n"), section) for section in SECTIONS)
