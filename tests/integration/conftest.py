"""A real zygote for each file, and a real worker for each test that asks for one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

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
