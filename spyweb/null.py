"""JSON's null, the same on both sides of the border to Lua.  A worker imports this, and so only msgspec."""

from __future__ import annotations

from enum import Enum
from typing import Final

import msgspec


class Null(Enum):
    """JSON's null, which a Lua table can hold and which is not nil.

    Its value is what msgspec writes for it: the extension type by which it crosses to a VM and back.  So a value is
    sent to Lua as it is, without a search for nulls in it.
    """

    NULL = msgspec.msgpack.Ext(4, b"")

    def __repr__(self) -> str:
        return "NULL"  # msgspec's own would name an address


NULL: Final = Null.NULL
