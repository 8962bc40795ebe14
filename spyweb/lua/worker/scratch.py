"""Checks whether files compile, without a VM: neither a prelude nor a library is needed for that."""

from __future__ import annotations

from spyweb.lua.worker.values import Function
from spyweb.lua.worker.vm import MARGIN, Bytecode, new_runtime

# Takes the bytecode of compile.lua; gives compile(source, name) -> the reason why it does not compile.
_COMPILER = """
local compile = load(..., "=?", "b")({ raw = _G, env = {}, internals = {} }).compile
local compiled = {}                 -- in a VM they would be there together
return function(source, name)
  local f, message = compile(source, "@" .. name)
  compiled[#compiled + 1] = f
  return message
end
"""
_PRELUDE_SIZE = 16 << 10  # bytes that a VM takes before its files


class Scratch:
    """Compiles files within the memory limit of a VM, and does nothing else.  It raises what a VM raises."""

    def __init__(self, bytecode: Bytecode, limit: int) -> None:
        self._room = limit - _PRELUDE_SIZE
        self._runtime = new_runtime(self._room)
        self._compile: Function = self._runtime.execute(_COMPILER, bytecode["compile"])

    def compile(self, name: bytes, source: bytes) -> bytes | None:
        """Compile a file; return the reason if it does not compile."""
        message: bytes | None = self._compile(source, name)
        return message

    def has_room(self, size: int) -> bool:
        """Return whether a push of this size fits: one that does not would end the process."""
        if self._runtime.get_memory_used() + size + MARGIN > self._room:
            self._runtime.execute("collectgarbage()")
        return self._runtime.get_memory_used() + size + MARGIN <= self._room
