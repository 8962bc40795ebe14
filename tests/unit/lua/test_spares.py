from __future__ import annotations

from itertools import count
from typing import cast

import pytest

from spyweb.lua.remote import RemoteWorker, Vm
from spyweb.lua.session import Code
from spyweb.lua.spares import Spares
from spyweb.model import JobId


class Loader:
    """Makes VMs that know nothing of workers."""

    def __init__(self) -> None:
        self.vms: list[Vm] = []
        self._numbers = count(1)

    def __call__(self, code: Code) -> Vm:
        vm = Vm(number=next(self._numbers), code=code, worker=cast(RemoteWorker, None))
        self.vms.append(vm)
        return vm


def make_code(generation: int = 1, source: bytes = b"x = 1") -> Code:
    return Code(job=JobId("server"), generation=generation, chunk="server/init.lua", source=source)


@pytest.fixture
def loader() -> Loader:
    return Loader()


@pytest.fixture
def spares(loader: Loader) -> Spares:
    return Spares(loader)


def test_as_many_are_loaded_as_shall_be_kept(spares: Spares, loader: Loader) -> None:
    assert spares.keep(make_code(), 3) == ()
    assert len(loader.vms) == 3


def test_each_is_given_once(spares: Spares) -> None:
    spares.keep(make_code(), 2)
    taken = [spares.take(make_code()) for _ in range(3)]

    assert [vm.number if vm else None for vm in taken] == [1, 2, None]


def test_one_that_is_loaded_is_given_before_one_that_is_being_loaded(spares: Spares, loader: Loader) -> None:
    spares.keep(make_code(), 3)
    loader.vms[1].is_loaded = True

    assert spares.take(make_code()) is loader.vms[1]


def test_what_was_taken_is_made_good_when_asked(spares: Spares, loader: Loader) -> None:
    spares.keep(make_code(), 2)
    spares.take(make_code())
    assert len(loader.vms) == 2
    spares.fill(make_code())

    assert len(loader.vms) == 3


def test_a_newer_code_takes_the_place_of_the_older(spares: Spares, loader: Loader) -> None:
    spares.keep(make_code(1), 2)
    leaving = spares.keep(make_code(2), 2)

    assert leaving == loader.vms[:2]
    assert spares.take(make_code(1)) is None
    assert spares.take(make_code(2)) is loader.vms[2]


def test_the_same_code_again_keeps_what_there_is(spares: Spares, loader: Loader) -> None:
    spares.keep(make_code(), 2)

    assert spares.keep(make_code(), 3) == []
    assert len(loader.vms) == 3
    assert spares.keep(make_code(), 1) == loader.vms[1:]


def test_code_that_is_not_kept_is_neither_given_nor_loaded(spares: Spares, loader: Loader) -> None:
    spares.fill(make_code())

    assert (spares.take(make_code()), loader.vms) == (None, [])


def test_a_lost_one_is_not_given_and_not_made_good_by_itself(spares: Spares, loader: Loader) -> None:
    spares.keep(make_code(), 1)
    spares.remove(loader.vms[0])

    assert spares.take(make_code()) is None
    assert len(loader.vms) == 1


def test_code_that_does_not_compile_is_loaded_no_more(spares: Spares, loader: Loader) -> None:
    spares.keep(make_code(), 2)
    spares.give_up(make_code())
    spares.remove(loader.vms[0])
    spares.fill(make_code())

    assert len(loader.vms) == 2


def test_older_generations_go_when_they_are_retired(spares: Spares, loader: Loader) -> None:
    spares.keep(make_code(1), 1)

    assert spares.retire(JobId("server"), 1) == ()
    assert spares.retire(JobId("server"), 2) == loader.vms
    assert spares.take(make_code(1)) is None


def test_nothing_is_kept_after_all_is_cleared(spares: Spares) -> None:
    spares.keep(make_code(), 1)
    spares.clear()

    assert spares.take(make_code()) is None
