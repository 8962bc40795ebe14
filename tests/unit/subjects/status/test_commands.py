"""`spyweb status export`: the files of a daemon's status page."""

from __future__ import annotations

import asyncio
from pathlib import Path

from spyweb.subjects.status.service import HTML, StatusService
from tests.fakes.command import spyweb
from tests.fakes.daemon_service import FakeDaemonService
from tests.fakes.daemon_socket import serve_daemon_socket
from tests.fakes.status import make_status


def test_the_files_are_written_as_they_are_served(project: Path) -> None:
    made: tuple[FakeDaemonService, StatusService] = asyncio.run(make_status(project))
    service, status = made
    with serve_daemon_socket(service, project / "data"):
        done = spyweb("status", "export", str(project / "out"), root=project)
        files = asyncio.run(status.files())
    assert done.out == f"{len(files)} files are in {project / 'out'}\n"
    assert {path.name: path.read_bytes() for path in (project / "out").iterdir()} == {
        name: served.content for name, served in files.items()
    }
    assert (project / "out" / HTML).stat().st_mode & 0o777 == 0o644


def test_without_a_daemon_or_a_page_that_is_said(project: Path) -> None:
    assert "no daemon runs in" in spyweb("status", "export", "out", root=project).err
    with serve_daemon_socket(FakeDaemonService(root=project), project / "data"):
        assert "config.toml has no [status_page]" in spyweb("status", "export", "out", root=project).err
