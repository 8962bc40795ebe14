from __future__ import annotations

import re

from spyweb.lua.hooks import HOOK_NAMES, UNLOADED, bit_of, is_defined
from tests.fakes.repository import ROOT


def test_each_hook_has_a_bit_of_its_own() -> None:
    assert sum(bit_of(hook) for hook in HOOK_NAMES) == (1 << len(HOOK_NAMES)) - 1


def test_a_hook_is_defined_when_its_bit_is_set() -> None:
    assert is_defined(bit_of("on_error"), "on_error")
    assert not is_defined(bit_of("on_error"), "on_finally")


def test_nothing_is_defined_before_the_files_have_run() -> None:
    assert not any(is_defined(UNLOADED, hook) for hook in HOOK_NAMES)


def test_the_worker_knows_the_same_hooks_in_the_same_order() -> None:
    text = (ROOT / "spyweb/lua/worker/runtime/cycle.lua").read_text()
    listed = re.search(r"local HOOKS = \{(.*?)\}", text, re.DOTALL)

    assert listed is not None
    assert tuple(re.findall(r'"(\w+)"', listed[1])) == HOOK_NAMES
