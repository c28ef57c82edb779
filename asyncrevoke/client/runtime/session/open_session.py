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
from asyncrevoke.client.runtime.hooks.observers import (
    Observed,
    Observer,
    Observers,
    PartitionStatus,
    partition_statuses,
)
from asyncrevoke.client.runtime.hooks.rebalance_listener import ListenerCalls, awaits_assignment
from asyncrevoke.client.runtime.hooks.transactions import TransactionHook
from asyncrevoke.client.runtime.loop.blocked_loop import HeartbeatThread, tick_interval
from asyncrevoke.client.runtime.loop.driver import Driver
from asyncrevoke.client.runtime.net.authentication.oauthbearer import RememberedToken
from asyncrevoke.client.runtime.net.channels import Channels
from asyncrevoke.client.runtime.session.parts import Decoders, SessionHooks, SessionParts
from asyncrevoke.client.runtime.session.reactions import SessionReactions
from asyncrevoke.client.runtime.session.record_iterator import ReadReports
from asyncrevoke.client.runtime.session.record_owners import RecordOwners
from asyncrevoke.client.runtime.session.session import Session
from asyncrevoke.client.runtime.session.status import SessionStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence
    from random import Random

    from asyncrevoke.client.config import ConsumerConfig
    from asyncrevoke.client.core.io.driven_core import DrivenCore
    from asyncrevoke.client.core.share.counts import ShareCounts
    from asyncrevoke.client.runtime.hooks.recorders import (
        CallRecorder,
        SessionJournal,
        SessionRecorder,
    )
    from asyncrevoke.client.runtime.net.requests import Requests
    from asyncrevoke.client.runtime.session.entered_session import EnteredSession


_TOLERATED_PART_OF_SESSION = 3


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
    opened: Callable[[EnteredSession], None]


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
    config, environment = config_and_environment(config)
    recorder = open_recorder(config, journal, environment)
    of_loop, of_thread = for_two_threads(config)
    bootstrap = bootstrap_nodes(config, environment)
    core = _open_core(of_loop, bootstrap, environment, recorder, whole_batches=whole_batches)
    if awaits_assignment(listener):
        core.lifespans.await_listener()
    partitions = partial(partition_statuses, core.assignment)
    hooks = open_hooks(config, core, partitions, listener, observers, recorder)
    requests: Requests = (
        Channels(of_loop, hooks.log) if environment is None else environment.requests
    )
    if recorder is not None:
        requests = recorder.requests(requests)
    driver = open_driver(
        config,
        core,
        requests,
        hooks,
        SessionReactions(hooks),
        _heartbeat_thread(config, core, hooks, of_thread) if environment is None else None,
        jitter=None if environment is None else environment.jitter,
    )
    decoders = None if environment is not None else _decoders(of_loop, recorder)
    session = Session(
        session_parts(config, core, driver, requests, bootstrap, hooks, environment, decoders), core
    )
    if environment is not None:
        environment.opened(session)
    return session


def config_and_environment(config: ConsumerConfig) -> tuple[ConsumerConfig, Environment | None]:
    """The options of the session to open, and the environment of a test if it is in one."""
    if (override := config_override.get()) is not None:
        config = override(config)
    environments = _environments.get()
    return config, environments.pop() if environments else None


def session_parts(
    config: ConsumerConfig,
    core: DrivenCore,
    driver: Driver,
    requests: Requests,
    bootstrap: Sequence[Node],
    hooks: SessionHooks,
    environment: Environment | None,
    decoders: Decoders | None = None,
) -> SessionParts:
    """The parts of a session; an ``environment`` replaces threads and the machine's clock."""
    return SessionParts(
        config=config,
        core=core,
        driver=driver,
        requests=requests,
        bootstrap=bootstrap,
        hooks=hooks,
        checks_output_topics=environment is None,
        uses_threads=environment is None,
        call_recorder=None if environment is None else environment.call_recorder,
        decoders=decoders,
        wall_clock=time.time if environment is None else environment.wall_clock,
    )


def open_hooks(
    config: ConsumerConfig,
    core: DrivenCore,
    partitions: Callable[[], tuple[PartitionStatus, ...]],
    listener: object,
    observers: Sequence[Observer],
    recorder: SessionRecorder | None,
    share: ShareCounts | None = None,
) -> SessionHooks:
    """The log, the listener, the observers and the journal of a session. ``partitions`` returns the
    status of each assigned partition; ``share`` counts in a share group."""
    log = EventLog(core, **({} if config.group_id is None else {"group": config.group_id}))
    owners = RecordOwners()
    transactions = TransactionHook()
    status = SessionStatus(core, owners, transactions, partitions)
    observing = None
    if observers:
        observed = Observed(
            status.snapshot, group_id=config.group_id, client_id=config.client_id, share=share
        )
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


def open_driver(
    config: ConsumerConfig,
    core: DrivenCore,
    requests: Requests,
    hooks: SessionHooks,
    reactions: SessionReactions,
    open_heartbeat_thread: Callable[[Driver], HeartbeatThread] | None,
    *,
    jitter: Random | None,
) -> Driver:
    """The driver of a session."""
    return Driver(
        core,
        requests,
        hooks.log,
        hooks.listener,
        hooks.lifespans,
        reactions,
        tolerated_lag=config.session_timeout / _TOLERATED_PART_OF_SESSION,
        open_heartbeat_thread=open_heartbeat_thread,
        jitter=jitter,
    )


def _heartbeat_thread(
    config: ConsumerConfig, core: Core, hooks: SessionHooks, of_thread: ConsumerConfig
) -> Callable[[Driver], HeartbeatThread] | None:
    """A function that makes the heartbeat thread; None: there is none."""
    if not config.heartbeat_thread or config.group_id is None:
        return None
    tolerated_lag = config.session_timeout / _TOLERATED_PART_OF_SESSION
    return partial(
        HeartbeatThread,
        connect=partial(Channels, of_thread, hooks.log),
        core=core,
        log=hooks.log,
        blocked_after=2 * tick_interval(tolerated_lag),
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
        decode = record_decoder(config, whole_batches=whole_batches)
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


def bootstrap_nodes(config: ConsumerConfig, environment: Environment | None) -> Sequence[Node]:
    """The addresses to begin with; their ids are negative."""
    if environment is not None:
        return environment.bootstrap
    return [Node(-1 - n, host, port) for n, (host, port) in enumerate(config.addresses)]


def _decoders(config: ConsumerConfig, recorder: SessionRecorder | None) -> Decoders:
    """The decoders of columns; a ``recorder`` of the journal sees what they decode."""
    whole, plain = (record_decoder(config, whole_batches=is_whole) for is_whole in (True, False))
    if recorder is None:
        return Decoders(whole, plain)
    return Decoders(recorder.decoder(whole), recorder.decoder(plain))


def record_decoder(config: ConsumerConfig, *, whole_batches: bool) -> RecordDecoder:
    """A decoder that limits the decompressed size of batches."""
    limit = max(LARGEST_UNPACKED, 4 * config.buffer_memory)
    views = config.value_as == "view"
    return partial(decode_batches, limit=limit, whole=whole_batches, views=views)


def open_recorder(
    config: ConsumerConfig, journal: SessionJournal | None, environment: Environment | None
) -> SessionRecorder | None:
    """The recorder of a journal for this session; None without a journal."""
    if journal is None:
        return None
    clock = None if environment is None else environment.wall_clock
    return journal.begin(_journal_facts(config), wall_clock=clock)


def _journal_facts(config: ConsumerConfig) -> dict[str, object]:
    """The options of a consumer that its journal records."""
    order_by = config.order_by
    return {
        "group": config.group_id,
        "group_type": config.group_type,
        "client_id": config.client_id,
        "group_protocol": config.group_protocol,
        "isolation_level": config.isolation_level,
        "commit_mode": config.commit_mode,
        "order_by": "function" if callable(order_by) else order_by,
        "null_keys": config.null_keys,
        "revoke_budget": config.revoke_timeout or config.rebalance_timeout,
    }


def for_two_threads(config: ConsumerConfig) -> tuple[ConsumerConfig, ConsumerConfig]:
    """The configuration for the event loop, and the one for the heartbeat thread."""
    provider = config.sasl_oauth_token_provider
    if provider is None:
        return config, config
    remembered = RememberedToken(provider)
    return (
        replace(config, sasl_oauth_token_provider=remembered.provider()),
        replace(config, sasl_oauth_token_provider=remembered.repeated()),
    )
