"""Requests of a broker's administration have the limits of a consumer's connections."""

from __future__ import annotations

import asyncio
import struct

import pytest
from wire.fake_broker import API_VERSIONS
from wire.test_unauthenticated_brokers import HostileBroker

from asyncrevoke.broker.admin import Admin


@pytest.mark.timeout(30)
async def test_a_frame_beyond_the_limit_is_an_error_before_it_is_read() -> None:
    broker = HostileBroker()
    broker.on[API_VERSIONS] = lambda _correlation, _data: struct.pack(">i", 2**31 - 1)
    node = await broker.start()
    try:
        with pytest.raises(ConnectionError, match="exceeds the limit"):
            await asyncio.to_thread(Admin(f"{node.host}:{node.port}", timeout=20).brokers)
    finally:
        await broker.stop()
