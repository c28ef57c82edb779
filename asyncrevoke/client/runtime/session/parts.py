"""What a session is made of."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from asyncrevoke.client.model import Value
from asyncrevoke.client.protocol.records import RecordDecoder

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from asyncrevoke.client.config import ConsumerConfig
    from asyncrevoke.client.core.io.driven_core import DrivenCore
    from asyncrevoke.client.core.io.effects import Node
    from asyncrevoke.client.runtime.hooks.event_log import EventLog
    from asyncrevoke.client.runtime.hooks.lifespan_events import LifespanEvents
    from asyncrevoke.client.runtime.hooks.observers import Observers
    from asyncrevoke.client.runtime.hooks.rebalance_listener import ListenerCalls
    from asyncrevoke.client.runtime.hooks.recorders import CallRecorder, SessionRecorder
    from asyncrevoke.client.runtime.hooks.transactions import TransactionHook
    from asyncrevoke.client.runtime.loop.driver import Driver
    from asyncrevoke.client.runtime.net.requests import Requests
    from asyncrevoke.client.runtime.session.record_iterator import ReadReports
    from asyncrevoke.client.runtime.session.record_owners import RecordOwners
    from asyncrevoke.client.runtime.session.status import SessionStatus


class SessionHooks(Value, frozen=True, kw_only=True):
    """What is informed of events in a session.

    ``observers`` and ``recorder`` (of the journal) are None if there are none.
    """

    log: EventLog
    listener: ListenerCalls
    owners: RecordOwners
    status: SessionStatus
    reads: ReadReports
    lifespans: LifespanEvents
    transactions: TransactionHook
    observers: Observers | None = None
    recorder: SessionRecorder | None = None


class Decoders(NamedTuple):
    """Decoders of fetched partitions: ``whole`` to batches as they are in the log, ``plain`` to
    records."""

    whole: RecordDecoder
    plain: RecordDecoder


class SessionParts(Value, frozen=True, kw_only=True):
    """What a session is made of; ``open_session`` creates it.

    ``requests`` sends over its connections, and ``bootstrap`` are the addresses to begin with.
    ``config`` has the user's options, also for other clients that the consumer needs.
    ``checks_output_topics``: whether topics that are written to have to exist at the start.
    ``uses_threads``: whether sync handlers run beside the event loop, and large batches of results
    are compressed in a thread; not in a test, in which time is virtual.
    ``call_recorder`` is that of a test's environment, else None. ``decoders`` are None in a test
    and in a share group.
    ``wall_clock`` returns seconds since the epoch.
    """

    config: ConsumerConfig
    core: DrivenCore
    driver: Driver
    requests: Requests
    bootstrap: Sequence[Node]
    hooks: SessionHooks
    checks_output_topics: bool = True
    uses_threads: bool = True
    call_recorder: CallRecorder | None = None
    decoders: Decoders | None = None
    wall_clock: Callable[[], float] = time.time
