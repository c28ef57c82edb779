"""What a session is made of."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncrevoke.config import ConsumerConfig
    from asyncrevoke.core.consumer_core import ConsumerCore
    from asyncrevoke.runtime.call_log import CallLog
    from asyncrevoke.runtime.driver import Driver
    from asyncrevoke.runtime.event_log import EventLog
    from asyncrevoke.runtime.letters import LetterWriter
    from asyncrevoke.runtime.listener import ListenerCalls
    from asyncrevoke.runtime.observers import Observers
    from asyncrevoke.runtime.read_reports import ReadReports
    from asyncrevoke.runtime.record_owners import RecordOwners
    from asyncrevoke.runtime.session_status import SessionStatus
    from asyncrevoke.runtime.witness import Witness


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionParts:
    """What a session is made of; ``open_session`` puts it together.

    ``config`` is what the user gave, for other clients of ours. ``observers`` and ``recorder`` (of
    the journal) are None if there are none. ``dead_letters`` and ``call_log`` are those of a test's
    environment, else None. ``wall_clock`` returns seconds since the epoch.
    """

    config: ConsumerConfig
    core: ConsumerCore
    driver: Driver
    listener: ListenerCalls
    log: EventLog
    owners: RecordOwners
    status: SessionStatus
    reads: ReadReports
    observers: Observers | None = None
    recorder: Witness | None = None
    dead_letters: LetterWriter | None = None
    call_log: CallLog | None = None
    wall_clock: Callable[[], float] = time.time
