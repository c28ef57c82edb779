"""The states of a transactional producer (KIP-98, KIP-360, KIP-890), and what each event leads
to."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping


class State(enum.Enum):
    """A producer has at most one transaction at a time."""

    UNINITIALIZED = "uninitialized"  # no producer id is known: InitProducerId, which fences others
    READY = "ready"  # no transaction
    ADDING = "adding"  # AddPartitionsToTxn and AddOffsetsToTxn, below transaction.version 2
    PRODUCING = "producing"  # Produce, until each batch is acknowledged
    OFFSETS = "offsets"  # TxnOffsetCommit, until it is acknowledged
    COMMITTING = "committing"  # EndTxn (commit), until it is acknowledged
    ABORTING = "aborting"  # EndTxn (abort), until it is acknowledged
    # InitProducerId with the id and epoch that are known: requests that are late are rejected
    # after it, and so is this producer if another one has taken its transactional id over.
    BUMPING = "bumping"
    FATAL = "fatal"  # every further transaction fails, whatever the state before was


class Event(enum.Enum):
    """What has happened to the producer."""

    INITIALIZED = "initialized"  # a producer id and epoch are known
    ID_EXPIRED = "id expired"  # the coordinator does not know the producer id any more
    BEGUN = "begun"  # a transaction with records begins, with transaction.version 2
    # One to which AddPartitionsToTxn adds partitions, and AddOffsetsToTxn a group.
    BEGUN_EXPLICIT = "begun explicit"
    ADDED = "added"  # the transaction has all its partitions and its group, and has records
    # No batch is left to be acknowledged, and the transaction has offsets.
    OFFSETS_LEFT = "offsets left"
    WRITTEN = "written"  # each batch is acknowledged, and so are the offsets
    REFUSED = "refused"  # a request was rejected: nothing of the transaction may be visible
    FENCED = "fenced"  # the epoch is not the present one: the coordinator has aborted, or another
    # producer has the transactional id
    ENDED = "ended"  # EndTxn is acknowledged
    # EndTxn is acknowledged, and an earlier request may still arrive.
    ENDED_WITH_LATE_REQUEST = "ended with late request"
    ABORTED_BY_COORDINATOR = "aborted by coordinator"  # after transaction.timeout.ms
    DOUBTFUL = "doubtful"  # whether the commit took place cannot be told


_S, _E = State, Event

TRANSITIONS: Final[Mapping[State, Mapping[Event, State]]] = {
    _S.UNINITIALIZED: {_E.INITIALIZED: _S.READY},
    _S.READY: {
        _E.BEGUN: _S.PRODUCING,
        _E.BEGUN_EXPLICIT: _S.ADDING,
        _E.OFFSETS_LEFT: _S.OFFSETS,
        # Before the next transaction: the cluster has another transaction.version now.
        _E.FENCED: _S.BUMPING,
    },
    _S.ADDING: {
        _E.ADDED: _S.PRODUCING,
        _E.OFFSETS_LEFT: _S.OFFSETS,
        _E.REFUSED: _S.ABORTING,
        _E.FENCED: _S.BUMPING,
        _E.ID_EXPIRED: _S.UNINITIALIZED,
    },
    _S.PRODUCING: {
        _E.OFFSETS_LEFT: _S.OFFSETS,
        _E.WRITTEN: _S.COMMITTING,
        _E.REFUSED: _S.ABORTING,
        _E.FENCED: _S.BUMPING,
        _E.ID_EXPIRED: _S.UNINITIALIZED,
    },
    _S.OFFSETS: {
        _E.WRITTEN: _S.COMMITTING,
        _E.REFUSED: _S.ABORTING,
        _E.FENCED: _S.BUMPING,
        _E.ID_EXPIRED: _S.UNINITIALIZED,
    },
    _S.COMMITTING: {
        _E.ENDED: _S.READY,
        _E.ENDED_WITH_LATE_REQUEST: _S.BUMPING,
        _E.ABORTED_BY_COORDINATOR: _S.BUMPING,
        _E.DOUBTFUL: _S.BUMPING,
        _E.REFUSED: _S.ABORTING,
    },
    _S.ABORTING: {
        _E.ENDED: _S.READY,
        _E.ENDED_WITH_LATE_REQUEST: _S.BUMPING,
        _E.FENCED: _S.BUMPING,
        _E.ID_EXPIRED: _S.UNINITIALIZED,
    },
    _S.BUMPING: {
        _E.INITIALIZED: _S.READY,
        _E.ID_EXPIRED: _S.UNINITIALIZED,
    },
    _S.FATAL: {},
}
