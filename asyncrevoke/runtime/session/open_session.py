"""Puts the parts of an entered consumer together. Loaded when a consumer is first entered."""

from __future__ import annotations

import asyncio
import time
import uuid
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from asyncrevoke.core.consumer_core import ConsumerCore
from asyncrevoke.core.io.effects import Node
from asyncrevoke.protocol.records import LARGEST_UNPACKED, decode_batches
from asyncrevoke.runtime.hooks.event_log import EventLog
from asyncrevoke.runtime.hooks.listener_calls import ListenerCalls
from asyncrevoke.runtime.hooks.observers import Observers
from asyncrevoke.runtime.loop.driver import Driver
from asyncrevoke.runtime.loop.heartbeat_thread import HeartbeatThread
from asyncrevoke.runtime.loop.loop_lag import tick_interval
from asyncrevoke.runtime.net.authentication.remembered_token import RememberedToken
from asyncrevoke.runtime.net.channels import Channels
from asyncrevoke.runtime.session.session import Session

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence
    from random import Random

    from asyncrevoke.config import ConsumerConfig
    from asyncrevoke.protocol.records import RecordDecoder
    from asyncrevoke.runtime.hooks.call_recorder import CallLog
    from asyncrevoke.runtime.hooks.dead_letter_writer import LetterWriter
    from asyncrevoke.runtime.hooks.journal_hooks import Journal
    from asyncrevoke.runtime.hooks.observer import Observer
    from asyncrevoke.runtime.net.requests import Requests


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What a consumer is opened in instead of sockets and brokers; ``opened`` is told its session.

    ``jitter`` spreads timers, ``letters`` takes what would go to dead letter topics, and
    ``call_log`` writes down the calls of handlers, and ``wall_clock`` tells the seconds since the
    epoch.
    """

    bootstrap: Sequence[Node]
    requests: Requests
    decode: RecordDecoder
    letters: LetterWriter
    call_log: CallLog
    jitter: Random
    wall_clock: Callable[[], float]
    opened: Callable[[Session], None]


# A list, because tasks that the consumer starts inherit the variable: the first one takes it.
_worlds: ContextVar[list[World] | None] = ContextVar("asyncrevoke worlds", default=None)


@contextmanager
def opened_in(world: World) -> Generator[None]:
    """Inside, the next consumer that is entered by this task is opened in ``world``."""
    worlds = [world]
    token = _worlds.set(worlds)
    try:
        yield
    finally:
        worlds.clear()
        _worlds.reset(token)


# Changes the options of consumers that are opened: for one of several workers, or for a test.
adapted: ContextVar[Callable[[ConsumerConfig], ConsumerConfig] | None] = ContextVar(
    "asyncrevoke adapted options", default=None
)


def open_session(
    config: ConsumerConfig,
    listener: object,
    observers: Sequence[Observer] = (),
    journal: Journal | None = None,
    *,
    whole_batches: bool = False,
) -> Session:
    """A session on the running event loop, not started yet.

    ``whole_batches``: what it gives as records are record batches, see ``decode_batches``.
    """
    if (adapt := adapted.get()) is not None:
        config = adapt(config)
    given = config
    worlds = _worlds.get()
    world = worlds.pop() if worlds else None
    # Timestamps that lie back from now need the wall clock; the core has the loop's.
    wall_clock = time.time if world is None else world.wall_clock
    wall_clock_offset = wall_clock() - asyncio.get_running_loop().time()
    bootstrap: Sequence[Node] = (
        [Node(-1 - n, host, port) for n, (host, port) in enumerate(config.addresses)]
        if world is None
        else world.bootstrap
    )
    config, config_of_thread = _for_two_threads(config)
    decode = _decoder(config, whole_batches=whole_batches) if world is None else world.decode
    witness = None
    if journal is not None:
        clock = None if world is None else world.wall_clock
        witness = journal.begin(_facts(config), wall_clock=clock)
        decode = witness.decoder(decode)
    core = ConsumerCore(
        config,
        bootstrap,
        decode,
        wall_clock_offset=wall_clock_offset,
        member_id=f"{config.client_id}-{uuid.uuid4()}",
    )
    log = EventLog(**({} if config.group_id is None else {"group": config.group_id}))
    log.member = lambda: core.group_metadata().member_id
    calls = ListenerCalls(listener)
    tolerated_lag = config.session_timeout / 3
    stand_in = None
    if config.heartbeat_thread and config.group_id is not None and world is None:
        stand_in = HeartbeatThread(
            lambda: Channels(config_of_thread),
            lambda: core.alive_until(driver.now()),
            log,
            patience=2 * tick_interval(tolerated_lag),
        )
    requests = Channels(config) if world is None else world.requests
    if witness is not None:
        requests = witness.requests(requests)
    driver = Driver(
        core,
        requests,
        log,
        calls,
        tolerated_lag=tolerated_lag,
        stand_in=stand_in,
        jitter=None if world is None else world.jitter,
        witness=witness,
    )
    session = Session(config, core, driver, calls, log)
    session.config = given
    if observers:
        session.observed_by(
            Observers(
                observers,
                log,
                session.facts,
                group_id=config.group_id,
                client_id=config.client_id,
            )
        )
    if witness is not None:
        session.watched_by(witness)
    if world is not None:
        session.letters = world.letters
        session.wall_clock = world.wall_clock
        session.call_log = world.call_log
        world.opened(session)
    return session


def _decoder(config: ConsumerConfig, *, whole_batches: bool) -> RecordDecoder:
    """With room for what batches unpack to, which one that is hostile has no end of."""
    limit = max(LARGEST_UNPACKED, 4 * config.buffer_memory)
    return partial(decode_batches, limit=limit, whole=whole_batches)


def _facts(config: ConsumerConfig) -> dict[str, object]:
    """What a journal should know of a consumer."""
    order_by = config.order_by
    return {
        "group": config.group_id,
        "client_id": config.client_id,
        "group_protocol": config.group_protocol,
        "isolation_level": config.isolation_level,
        "commit_mode": config.commit_mode,
        "order_by": "function" if callable(order_by) else order_by,
        "null_keys": config.null_keys,
        "revoke_budget": config.revoke_timeout or config.rebalance_timeout,
    }


def _for_two_threads(config: ConsumerConfig) -> tuple[ConsumerConfig, ConsumerConfig]:
    """The configuration for the event loop, and that for the heartbeat thread."""
    provider = config.sasl_oauth_token_provider
    if provider is None:
        return config, config
    remembered = RememberedToken(provider)
    return (
        replace(config, sasl_oauth_token_provider=remembered.provider()),
        replace(config, sasl_oauth_token_provider=remembered.again()),
    )
