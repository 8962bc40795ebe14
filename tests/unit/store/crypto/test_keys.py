"""Where the key of encrypted values comes from."""

from __future__ import annotations

import base64
import os
from pathlib import Path

import pytest

from spyweb.errors import NoAccess, StoreError
from spyweb.store.crypto.keys import find_key, read_key
from tests.fakes.rights import bound_by_file_modes, needs_linux
from tests.fakes.stores import KEY


def write(path: Path, content: bytes, mode: int = 0o600) -> Path:
    path.write_bytes(content)
    path.chmod(mode)
    return path


@pytest.mark.parametrize(
    "content",
    [
        KEY,
        KEY.hex().encode(),
        KEY.hex().upper().encode() + b"\n",
        base64.b64encode(KEY) + b"\n",
        base64.urlsafe_b64encode(b"\xff" * 32),
    ],
)
def test_a_key_is_32_bytes_as_they_are_or_written_out(tmp_path: Path, content: bytes) -> None:
    assert read_key(write(tmp_path / "key", content)) in (KEY, b"\xff" * 32)


@pytest.mark.parametrize(
    "content", [b"", b"short", KEY[:31], KEY + b"\n", b"z" * 64, b"\xff" * 64, KEY[:31].hex().encode()]
)
def test_what_is_no_key_is_refused_and_not_shown(tmp_path: Path, content: bytes) -> None:
    path = write(tmp_path / "key", content)

    with pytest.raises(StoreError, match=f"^{path}: a key is 32 bytes, as they are or as hex or base64$"):
        read_key(path)


@pytest.mark.parametrize("mode", [0o640, 0o604])
def test_a_key_that_others_may_read_is_refused(tmp_path: Path, mode: int) -> None:
    with pytest.raises(NoAccess, match="chmod 600"):
        read_key(write(tmp_path / "key", KEY, mode))


def test_a_key_that_is_absent_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="there is no key file"):
        read_key(tmp_path / "key")


@needs_linux
def test_a_key_in_a_folder_that_may_not_be_searched_is_one_clear_line(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir()
    path = write(closed / "key", KEY)
    closed.chmod(0)

    with bound_by_file_modes(), pytest.raises(NoAccess, match=f"^{path}: no access as "):
        read_key(path)


def test_a_path_is_relative_to_the_project(tmp_path: Path) -> None:
    write(tmp_path / "key", KEY)

    assert find_key("key", tmp_path, {}) == KEY
    assert find_key(str(tmp_path / "key"), Path("/elsewhere"), {}) == KEY


def test_a_credential_may_be_its_groups_to_read_since_systemd_makes_it_so(tmp_path: Path) -> None:
    write(tmp_path / "spyweb", KEY, 0o440)
    environment = {"CREDENTIALS_DIRECTORY": str(tmp_path)}

    assert find_key("credential:spyweb", Path("/elsewhere"), environment) == KEY

    (tmp_path / "spyweb").chmod(0o444)
    with pytest.raises(NoAccess, match="others than its owner"):
        find_key("credential:spyweb", Path("/elsewhere"), environment)


def test_a_credential_is_found_where_systemd_puts_it(tmp_path: Path) -> None:
    write(tmp_path / "spyweb", KEY, 0o400)

    assert find_key("credential:spyweb", Path("/elsewhere"), {"CREDENTIALS_DIRECTORY": str(tmp_path)}) == KEY
    with pytest.raises(StoreError, match="systemd has given no credentials"):
        find_key("credential:spyweb", tmp_path, {})


def test_a_named_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "key", 0o600)
    with pytest.raises(StoreError, match="key: not a regular file"):
        read_key(tmp_path / "key")
