from __future__ import annotations

import re

import pytest

from spyweb.lua.hooks import HOOK_NAMES, UNLOADED, is_defined
from tests.fakes.repository import ROOT


@pytest.mark.parametrize("hook", HOOK_NAMES)
def test_each_hook_has_a_bit_of_its_own_and_none_is_defined_before_the_files_have_run(hook: str) -> None:
    assert [name for name in HOOK_NAMES if is_defined(1 << HOOK_NAMES.index(hook), name)] == [hook]
    assert not is_defined(UNLOADED, hook)


def test_the_worker_knows_the_same_hooks_in_the_same_order() -> None:
    text = (ROOT / "spyweb/lua/worker/runtime/cycle.lua").read_text()
    listed = re.search(r"local HOOKS = \{(.*?)\}", text, re.DOTALL)

    assert listed is not None
    assert tuple(re.findall(r'"(\w+)"', listed[1])) == HOOK_NAMES
