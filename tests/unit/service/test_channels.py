"""Channels are tried out."""

from __future__ import annotations

import pytest

from spyweb.errors import Refused
from spyweb.service.channels import ChannelService
from spyweb.views.channels import ChannelTried
from tests.fakes.clock import FakeClock
from tests.fakes.daemon_service import try_out


async def test_how_it_went_is_said() -> None:
    service = ChannelService(try_out, FakeClock())
    assert await service.try_out("ops") == ChannelTried(channel="ops", is_sent=True)
    assert await service.try_out("phone") == ChannelTried(channel="phone", is_sent=False, reason="answered 401")
    with pytest.raises(Refused, match="there is no channel nope"):
        await service.try_out("nope")
