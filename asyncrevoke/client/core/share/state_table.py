"""The states of a share session and of an acquired record, with all transitions (KIP-932).

A session is one of a member at one broker. It ends with the connection that opened it, and with it
the locks of all records that were acquired in it.
"""

from __future__ import annotations

import enum


class SessionState(enum.Enum):
    """The state of a session. OPENING has sent a ShareFetch with epoch 0, CLOSING one with -1."""

    CLOSED = "closed"
    OPENING = "opening"
    OPEN = "open"
    CLOSING = "closing"


class SessionTransition(enum.Enum):
    """Why a session changes its state."""

    OPEN = "there is something to fetch or to acknowledge"
    OPENED = "the broker has responded"
    EPOCH_UNKNOWN = "the broker does not know the session, or its epoch may have advanced"
    CONNECTION_LOST = "a request has no response: its connection is closed"
    CLOSE = "nothing is acquired any more, or there is no more time"
    CLOSED = "the broker has responded to the request that closes it"


SESSION_TRANSITIONS: dict[tuple[SessionState, SessionTransition], SessionState] = {
    (SessionState.CLOSED, SessionTransition.OPEN): SessionState.OPENING,
    (SessionState.CLOSED, SessionTransition.CLOSE): SessionState.CLOSED,
    (SessionState.OPENING, SessionTransition.OPENED): SessionState.OPEN,
    (SessionState.OPEN, SessionTransition.CLOSE): SessionState.CLOSING,
    (SessionState.CLOSING, SessionTransition.CLOSED): SessionState.CLOSED,
    **{(state, SessionTransition.EPOCH_UNKNOWN): SessionState.CLOSED for state in SessionState},
    **{(state, SessionTransition.CONNECTION_LOST): SessionState.CLOSED for state in SessionState},
}


class RecordState(enum.Enum):
    """The state of an acquired record. WAITING uses no slot: it waits for its next attempt, or to
    be released. ACCEPTING, REJECTING and RELEASING wait for the response to an acknowledgement."""

    # Without a call of Python, which Enum.__hash__ would be.
    __hash__ = object.__hash__

    HELD = "held"
    RUNNING = "running"
    WAITING = "waiting"
    ACCEPTING = "accepting"
    REJECTING = "rejecting"
    RELEASING = "releasing"
    DONE = "done"
    LOST = "lost"
    UNKNOWN = "unknown"


class RecordTransition(enum.Enum):
    """Why a record changes its state."""

    # Without a call of Python, which Enum.__hash__ would be.
    __hash__ = object.__hash__

    START = "a handler is called"
    WAIT = "the handler has failed, and is called again later, or the record is released later"
    ACCEPT = "the handler has returned, and its results are acknowledged"
    REJECT = "the dead letter is acknowledged"
    RELEASE = "the record is to be delivered again"
    ACKNOWLEDGED = "the broker has applied the acknowledgement"
    LOSE = "the lock has passed, or the leader has moved, or the connection is lost"
    NO_RESPONSE = "the acknowledgement has no response: the broker may have applied it"


_LOCKED = (RecordState.HELD, RecordState.RUNNING, RecordState.WAITING)
_ENDING = (RecordState.ACCEPTING, RecordState.REJECTING, RecordState.RELEASING)

RECORD_TRANSITIONS: dict[tuple[RecordState, RecordTransition], RecordState] = {
    (RecordState.HELD, RecordTransition.START): RecordState.RUNNING,
    (RecordState.WAITING, RecordTransition.START): RecordState.RUNNING,
    (RecordState.RUNNING, RecordTransition.WAIT): RecordState.WAITING,
    (RecordState.RUNNING, RecordTransition.ACCEPT): RecordState.ACCEPTING,
    (RecordState.RUNNING, RecordTransition.REJECT): RecordState.REJECTING,
    (RecordState.WAITING, RecordTransition.REJECT): RecordState.REJECTING,
    **{(state, RecordTransition.RELEASE): RecordState.RELEASING for state in _LOCKED},
    **{(state, RecordTransition.ACKNOWLEDGED): RecordState.DONE for state in _ENDING},
    **{(state, RecordTransition.LOSE): RecordState.LOST for state in (*_LOCKED, *_ENDING)},
    **{(state, RecordTransition.NO_RESPONSE): RecordState.UNKNOWN for state in _ENDING},
}
