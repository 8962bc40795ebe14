"""The op data.parse_yaml.  The rest of `data` is Lua (lua/worker/library/data.lua).

YAML is hostile text like HTML: it is parsed by an extractor process, never in the daemon.
"""

from __future__ import annotations

import msgspec

from spyweb import limits
from spyweb.errors import ExtractionError
from spyweb.model import MIB
from spyweb.ops.arguments import Text
from spyweb.ops.op import OpEffect, OpFamily, op
from spyweb.ops.world import Call

FAMILY = OpFamily(
    name="data", errors="Each returns nil and a message for an invalid text or value; a wrong type raises."
)

LARGEST = MIB  # bytes of a YAML text


@op(name="data.parse_yaml", effect=OpEffect.NONE, types="(text: string): any value, string? message")
async def parse_yaml(call: Call, text: Text) -> tuple[object, str | None]:
    """Return the value of a YAML text of at most 1 MB."""
    if len(text) > LARGEST:
        return None, limits.too_large("the YAML text", len(text), LARGEST)
    try:
        return msgspec.Raw(await call.world.extractor.parse_yaml(call.job, text)), None
    except ExtractionError as error:
        return None, str(error)
