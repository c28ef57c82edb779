"""Creates the parts of an entered consumer. Imported when a consumer is first constructed."""

from __future__ import annotations

import asyncio
import time
import uuid
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from asyncrevoke.client.core.core import Core
from asyncrevoke.client.core.io.effects import Node
from asyncrevoke.client.model import Value
from asyncrevoke.client.protocol.records import LARGEST_UNPACKED, RecordDecoder, decode_batches
from asyncrevoke.client.runtime.hooks.event_log import EventLog
from asyncrevoke.client.runtime.hooks.lifespan_events import LifespanEvents
from asyncrevoke.client.runtime.hooks.observers import Observed, Observer, Observers
from asyncrevoke.client.runtime.hooks.rebalance_listener import ListenerCalls, awaits_assignment
from asyncrevoke.client.runtime.hooks.transactions import TransactionHook
from asyncrevoke.client.runtime.loop.blocked_loop import HeartbeatThread, tick_interval
from asyncrevoke.client.runtime.loop.driver import Driver
from asyncrevoke.client.runtime.net.authentication.oauthbearer import RememberedToken
from asyncrevoke.client.runtime.net.channels import Channels
from asyncrevoke.client.runtime.session.parts import SessionHooks, SessionParts
from asyncrevoke.client.runtime.session.reactions import SessionReactions
from asyncrevoke.client.runtime.session.record_iterator import ReadReports
from asyncrevoke.client.runtime.session.record_owners import RecordOwners
from asyncrevoke.client.runtime.session.session import Session
from asyncrevoke.client.runtime.session.status import SessionStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence
    from random import Random

    from asyncrevoke.client.config import ConsumerConfig
    from asyncrevoke.client.runtime.hooks.recorders import (
        CallRecorder,
        SessionJournal,
        SessionRecorder,
    )
    from asyncrevoke.client.runtime.net.requests import Requests


class Environment(Value, frozen=True, kw_only=True):
    """Replaces sockets and brokers in tests.

    ``jitter`` spreads timers, ``call_recorder`` records the calls of handlers, ``wall_clock``
    returns seconds since the epoch, ``opened`` gets the session before it is started. Topics that
    are written to are created when the first record is.
    """

    bootstrap: Sequence[Node]
    requests: Requests
    decode: RecordDecoder
    call_recorder: CallRecorder
    jitter: Random
    wall_clock: Callable[[], float]
    opened: Callable[[Session], None]


# A list, because tasks of the consumer inherit the variable; opening a session empties it.
_environments: ContextVar[list[Environment] | None] = ContextVar(
    "asyncrevoke environments", default=None
)


@contextmanager
def in_environment(environment: Environment) -> Generator[None]:
    """Inside, the next consumer that this task enters has this environment."""
    environments = [environment]
    token = _environments.set(environments)
    try:
        yield
    finally:
        environments.clear()
        _environments.reset(token)


# Changes the options of consumers that are entered: for one of several workers, or for a test.
config_override: ContextVar[Callable[[ConsumerConfig], ConsumerConfig] | None] = ContextVar(
    "asyncrevoke config override", default=None
)


def open_session(
    config: ConsumerConfig,
    listener: object,
    observers: Sequence[Observer] = (),
    journal: SessionJournal | None = None,
    *,
    whole_batches: bool = False,
) -> Session:
    """A session on the running event loop, not started yet.

    With ``whole_batches`` each of its records is a record batch; see ``decode_batches``.
    """
    if (override := config_override.get()) is not None:
        config = override(config)
    environments = _environments.get()
    environment = environments.pop() if environments else None
    recorder = None
    if journal is not None:
        clock = None if environment is None else environment.wall_clock
        recorder = journal.begin(_journal_facts(config), wall_clock=clock)
    of_loop, of_thread = _for_two_threads(config)
    bootstrap = _bootstrap(config, environment)
    core = _open_core(of_loop, bootstrap, environment, recorder, whole_batches=whole_batches)
    if awaits_assignment(listener):
        core.lifespans.await_listener()
    hooks = _open_hooks(config, core, listener, observers, recorder)
    requests: Requests = (
        Channels(of_loop, hooks.log) if environment is None else environment.requests
    )
    if recorder is not None:
        requests = recorder.requests(requests)
    driver = _open_driver(
        config,
        core,
        requests,
        hooks,
        connect=partial(Channels, of_thread, hooks.log) if environment is None else None,
        jitter=None if environment is None else environment.jitter,
    )
    session = Session(
        SessionParts(
            config=config,
            core=core,
            driver=driver,
            requests=requests,
            bootstrap=bootstrap,
            hooks=hooks,
            checks_output_topics=environment is None,
            uses_threads=environment is None,
            call_recorder=None if environment is None else environment.call_recorder,
            wall_clock=time.time if environment is None else environment.wall_clock,
        )
    )
    if environment is not None:
        environment.opened(session)
    return session


def _open_hooks(
    config: ConsumerConfig,
    core: Core,
    listener: object,
    observers: Sequence[Observer],
    recorder: SessionRecorder | None,
) -> SessionHooks:
    """The log, the listener, the observers and the journal of a session."""
    log = EventLog(core, **({} if config.group_id is None else {"group": config.group_id}))
    owners = RecordOwners()
    transactions = TransactionHook()
    status = SessionStatus(core, owners, transactions)
    observing = None
    if observers:
        observed = Observed(status.snapshot, group_id=config.group_id, client_id=config.client_id)
        observing = Observers(observers, log, observed)
    return SessionHooks(
        log=log,
        listener=ListenerCalls(listener, config.max_poll_interval),
        owners=owners,
        status=status,
        reads=ReadReports(observing),
        lifespans=LifespanEvents(),
        transactions=transactions,
        observers=observing,
        recorder=recorder,
    )


def _open_driver(
    config: ConsumerConfig,
    core: Core,
    requests: Requests,
    hooks: SessionHooks,
    *,
    connect: Callable[[], Channels] | None,
    jitter: Random | None,
) -> Driver:
    """The driver; ``connect`` opens the connections of the heartbeat thread, None: without one."""
    tolerated_lag = config.session_timeout / 3
    open_heartbeat_thread = None
    if config.heartbeat_thread and config.group_id is not None and connect is not None:
        open_heartbeat_thread = partial(
            HeartbeatThread,
            connect=connect,
            core=core,
            log=hooks.log,
            blocked_after=2 * tick_interval(tolerated_lag),
        )
    return Driver(
        core,
        requests,
        hooks.log,
        hooks.listener,
        hooks.lifespans,
        SessionReactions(hooks),
        tolerated_lag=tolerated_lag,
        open_heartbeat_thread=open_heartbeat_thread,
        jitter=jitter,
    )


def _open_core(
    config: ConsumerConfig,
    bootstrap: Sequence[Node],
    environment: Environment | None,
    recorder: SessionRecorder | None,
    *,
    whole_batches: bool,
) -> Core:
    """The core; with a ``recorder`` of the journal, that one sees what is decoded."""
    if environment is None:
        decode = _decoder(config, whole_batches=whole_batches)
        wall_clock = time.time
    else:
        decode, wall_clock = environment.decode, environment.wall_clock
    return Core(
        config,
        bootstrap,
        decode if recorder is None else recorder.decoder(decode),
        # The core has the event loop's clock; timestamps of records are those of the wall clock.
        wall_clock_offset=wall_clock() - asyncio.get_running_loop().time(),
        member_id=f"{config.client_id}-{uuid.uuid4()}",
    )


def _bootstrap(config: ConsumerConfig, environment: Environment | None) -> Sequence[Node]:
    """The addresses to begin with; their ids are negative."""
    if environment is not None:
        return environment.bootstrap
    return [Node(-1 - n, host, port) for n, (host, port) in enumerate(config.addresses)]


def _decoder(config: ConsumerConfig, *, whole_batches: bool) -> RecordDecoder:
    """A decoder that limits the decompressed size of batches."""
    limit = max(LARGEST_UNPACKED, 4 * config.buffer_memory)
    views = config.value_as == "view"
    return partial(decode_batches, limit=limit, whole=whole_batches, views=views)


def _journal_facts(config: ConsumerConfig) -> dict[str, object]:
    """The options of a consumer that its journal records."""
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
    """The configuration for the event loop, and the one for the heartbeat thread."""
    provider = config.sasl_oauth_token_provider
    if provider is None:
        return config, config
    remembered = RememberedToken(provider)
    return (
        replace(config, sasl_oauth_token_provider=remembered.provider()),
        replace(config, sasl_oauth_token_provider=remembered.repeated()),
    )
