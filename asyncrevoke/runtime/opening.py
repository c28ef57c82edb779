"""Puts the parts of an entered consumer together. Loaded when a consumer is first entered."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from asyncrevoke.core.consumer_core import ConsumerCore
from asyncrevoke.core.effects import Node
from asyncrevoke.protocol.records import decode_batches
from asyncrevoke.runtime.channels import Channels
from asyncrevoke.runtime.driver import Driver
from asyncrevoke.runtime.event_log import EventLog
from asyncrevoke.runtime.listener import ListenerCalls
from asyncrevoke.runtime.session import Session

if TYPE_CHECKING:
    from asyncrevoke.config import ConsumerConfig


def open_session(config: ConsumerConfig, listener: object) -> Session:
    """A session on the running event loop, not started yet."""
    bootstrap = [Node(-1 - n, host, port) for n, (host, port) in enumerate(config.addresses)]
    # Timestamps that lie back from now need the wall clock; the core has the loop's.
    wall_clock_offset = time.time() - asyncio.get_running_loop().time()
    core = ConsumerCore(config, bootstrap, decode_batches, wall_clock_offset=wall_clock_offset)
    log = EventLog(**({} if config.group_id is None else {"group": config.group_id}))
    calls = ListenerCalls(listener)
    driver = Driver(core, Channels(config), log, calls, tolerated_lag=config.session_timeout / 3)
    return Session(config, core, driver, calls, log)
