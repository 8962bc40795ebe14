"""The daemon's socket is in the data directory, however long its path is."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from spyweb.errors import NoAccess
from spyweb.settings.socket_path import LIMIT, clear_place, name_for_kernel


@pytest.mark.parametrize("platform", ["linux", "darwin"])
@pytest.mark.parametrize("folder", ["d", "d" * LIMIT])
def test_a_socket_is_bound_and_reached_however_long_its_path_is(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, platform: str, folder: str
) -> None:
    monkeypatch.setattr("sys.platform", platform)
    path = tmp_path_factory.mktemp("s") / folder / "spyweb.sock"
    path.parent.mkdir()
    here = Path.cwd()
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as client:
        with name_for_kernel(path) as name:
            listener.bind(name)
        listener.listen()
        assert path.is_socket()
        with name_for_kernel(path) as name:
            assert len(os.fsencode(name)) <= LIMIT
            client.connect(name)
    assert Path.cwd() == here


def test_where_there_is_no_folder_nobody_listens(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), name_for_kernel(tmp_path / ("d" * LIMIT) / "spyweb.sock"):
        pass


def test_an_earlier_socket_or_a_link_gives_way_and_somebody_else_s_file_does_not(tmp_path: Path) -> None:
    path = tmp_path / "spyweb.sock"
    clear_place(path)
    path.symlink_to(tmp_path / "gone.sock")
    clear_place(path)
    with socket.socket(socket.AF_UNIX) as stale, name_for_kernel(path) as name:
        stale.bind(name)
    clear_place(path)
    assert not os.path.lexists(path)
    path.write_text("mine")
    with pytest.raises(NoAccess, match="in the way"):
        clear_place(path)
    assert path.read_text() == "mine"
