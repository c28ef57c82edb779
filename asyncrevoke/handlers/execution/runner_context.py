"""Options and services that a handler runner or a task group passes to its parts."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from random import random as random_fraction
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncrevoke.client.config import NullKeys, OrderBy
    from asyncrevoke.client.log_events import Log
    from asyncrevoke.client.producing.exactly_once.record_transactions import RecordTransactions
    from asyncrevoke.client.producing.record_producer import RecordProducer
    from asyncrevoke.client.runtime.hooks.observers import Observers
    from asyncrevoke.client.runtime.hooks.recorders import CallRecorder, SessionRecorder
    from asyncrevoke.client.runtime.loop.shutdown_deadline import ShutdownDeadline
    from asyncrevoke.handlers.dead_letters.producer import DeadLetterProducer
    from asyncrevoke.handlers.execution.worker_resources import WorkerResources
    from asyncrevoke.handlers.lifespans.partition_lifespans import PartitionLifespans
    from asyncrevoke.handlers.scheduling.record_source import RecordLocks


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerContext:
    """``concurrency`` calls run at once, in lanes by ``order_by`` and ``null_keys``; the source
    delivers at most ``max_in_flight`` records that are not done.

    Handlers receive ``state``, ``worker_resources`` and ``lifespans`` in their context.
    ``dead_letters`` writes to dead letter topics and retry topics, and is required if a handler has
    one; ``wall_clock`` (seconds since the epoch) decides when records of a retry topic are due.
    ``clock`` times retries, batches and calls, and ``random`` (from 0 to 1) varies the waits of
    retries. ``open_producer`` returns the producer of results; None, as in a replay: results are
    not published. ``transactions`` write them with ``processing="exactly_once"``.
    ``call_recorder``, ``observers`` and ``recorder`` record calls. ``deadline`` limits how long a
    cancelled runner waits for handlers. Failed records that cannot be written to another topic are
    held until they can be; in a replay, where ``holds_unwritten`` is False, they pause their
    partition. ``locks`` are those of the records of a share group.
    """

    concurrency: int
    log: Log
    order_by: OrderBy | None = "key"
    null_keys: NullKeys = "ordered"
    max_in_flight: int = 2000
    state: object = None
    worker_resources: WorkerResources | None = None
    lifespans: PartitionLifespans | None = None
    dead_letters: DeadLetterProducer | None = None
    open_producer: Callable[[], RecordProducer] | None = None
    transactions: RecordTransactions | None = None
    wall_clock: Callable[[], float] = time.time
    clock: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    random: Callable[[], float] = random_fraction
    call_recorder: CallRecorder | None = None
    observers: Observers | None = None
    recorder: SessionRecorder | None = None
    deadline: ShutdownDeadline | None = None
    holds_unwritten: bool = True
    locks: RecordLocks | None = None
