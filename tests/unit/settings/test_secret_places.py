"""Where secrets are found."""

from __future__ import annotations

from pathlib import Path

import pytest

from spyweb.settings.secret_places import read_secret, secret_place


def test_a_secret_is_read_from_the_environment_or_a_credential(tmp_path: Path) -> None:
    (tmp_path / "github").write_text("s3cret\n")
    environ = {"CREDENTIALS_DIRECTORY": str(tmp_path), "HOOK": " key "}
    assert read_secret("env:HOOK", environ) == b"key"
    assert read_secret("credential:github", environ) == b"s3cret"
    assert read_secret("credential:absent", environ) == b""
    assert read_secret("credential:github", {}) == b""


@pytest.mark.parametrize("place", ["env:HOOK", "credential:github"])
def test_a_setting_names_a_place(place: str) -> None:
    assert secret_place(place) == place


@pytest.mark.parametrize("given", ["hunter2", "env:", "env:A\n", "credential:../x"])
def test_a_secret_itself_is_refused_and_not_repeated(given: str) -> None:
    with pytest.raises(ValueError, match="not the secret itself") as refused:
        secret_place(given)
    assert "hunter2" not in str(refused.value)
