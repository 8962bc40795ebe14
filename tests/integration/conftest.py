"""What several files here share: a real worker of the file's zygote, a project with monitors, a web server."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from spyweb.alerts.sender.helper import AlertHelper
from spyweb.clock import RealClock
from tests.fakes.alert_services import MailBox, Services, open_mail_box, open_services
from tests.fakes.monitor_project import MonitorProject, open_project
from tests.fakes.scripts import Scripts, open_scripts
from tests.fakes.web_server import WebServer, open_web_server
from tests.fakes.worker_driver import WorkerDriver, ZygoteDriver, a_zygote


@pytest.fixture(scope="module")
def zygote() -> Iterator[ZygoteDriver]:
    with a_zygote() as zygote:
        yield zygote


@pytest.fixture
def worker(zygote: ZygoteDriver) -> Iterator[WorkerDriver]:
    worker = zygote.fork().init()
    yield worker
    worker.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_project(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[MonitorProject]:
    """Open one project for all tests of a file, which share its loop: `asyncio(loop_scope="module")`."""
    async with open_project(tmp_path_factory.mktemp("project")) as project:
        yield project


@pytest.fixture
def project(shared_project: MonitorProject) -> MonitorProject:
    """Return the shared project as if it were new."""
    shared_project.renew()
    return shared_project


@pytest.fixture
async def server() -> AsyncIterator[WebServer]:
    async with open_web_server() as server:
        yield server


@pytest.fixture
async def scripts(tmp_path: Path) -> AsyncIterator[Scripts]:
    async with open_scripts(tmp_path) as scripts:
        yield scripts


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def opened_scripts(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Scripts]:
    async with open_scripts(tmp_path_factory.mktemp("scripts"), workers=1) as scripts:
        yield scripts


@pytest_asyncio.fixture(loop_scope="module")
async def shared_scripts(opened_scripts: Scripts) -> Scripts:
    """Return those of the file, which its tests share with its loop, as if nothing had run yet."""
    await opened_scripts.set_up()
    return opened_scripts


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_helper(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[AlertHelper, Services]]:
    """Open services, and the process that sends to them, for all tests of a file, which share its loop."""
    with open_services(tmp_path_factory.mktemp("services")) as services:
        helper = AlertHelper(RealClock(), {**os.environ, **services.environ})
        yield helper, services
        await helper.close()


@pytest.fixture
def services(shared_helper: tuple[AlertHelper, Services]) -> Services:
    shared_helper[1].renew()
    return shared_helper[1]


@pytest.fixture
def helper(shared_helper: tuple[AlertHelper, Services], services: Services) -> AlertHelper:
    """Return what sends to these services."""
    return shared_helper[0]


@pytest.fixture
def mail_box() -> Iterator[MailBox]:
    with open_mail_box() as opened:
        yield opened
