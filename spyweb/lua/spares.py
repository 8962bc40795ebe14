"""VMs that are loaded and have executed nothing: whoever needs a fresh one does not wait for it to be made.

They are made good when one has been taken, not when one was lost: a script that is the death of its worker before it
even runs must not be the death of each worker in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from spyweb.lua.remote import Vm
from spyweb.lua.session import Code
from spyweb.model import JobId


@dataclass(slots=True, kw_only=True)
class Shelf:
    """The spares of one job."""

    code: Code
    count: int
    vms: list[Vm] = field(default_factory=list)


class Spares:
    def __init__(self, load: Callable[[Code], Vm]) -> None:
        self._load = load
        self._shelves: dict[JobId, Shelf] = {}

    def keep(self, code: Code, count: int) -> Sequence[Vm]:
        """Have that many of this code and of no older one; gives those that are to go."""
        old = self._shelves.get(code.job)
        shelf = Shelf(code=code, count=count)
        if old is not None and old.code == code:
            shelf.vms, old.vms = old.vms[:count], old.vms[count:]
        self._shelves[code.job] = shelf
        self.fill(code)
        return old.vms if old is not None else ()

    def take(self, code: Code) -> Vm | None:
        """One of this very code, if there is one: a loaded one sooner than one that is being loaded."""
        shelf = self._shelves.get(code.job)
        if shelf is None or shelf.code != code or not shelf.vms:
            return None
        vm = next((vm for vm in shelf.vms if vm.is_loaded), shelf.vms[0])
        shelf.vms.remove(vm)
        return vm

    def fill(self, code: Code) -> None:
        """Make good what has been taken."""
        shelf = self._shelves.get(code.job)
        if shelf is not None and shelf.code == code:
            shelf.vms += [self._load(code) for _ in range(shelf.count - len(shelf.vms))]

    def remove(self, vm: Vm) -> None:
        """It is gone, or goes."""
        shelf = self._shelves.get(vm.code.job)
        if shelf is not None and vm in shelf.vms:
            shelf.vms.remove(vm)

    def give_up(self, code: Code) -> None:
        """It does not compile: keep no more of it."""
        shelf = self._shelves.get(code.job)
        if shelf is not None and shelf.code == code:
            shelf.count = 0

    def retire(self, job: JobId, older_than: int) -> Sequence[Vm]:
        """Gives those that are to go."""
        shelf = self._shelves.get(job)
        if shelf is None or shelf.code.generation >= older_than:
            return ()
        return self._shelves.pop(job).vms

    def clear(self) -> None:
        """Keep none any more."""
        self._shelves.clear()
