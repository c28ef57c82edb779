"""The coordinator of transactional ids, by Apache Kafka's rules for each transaction.version.

What it has decided is in its log, and survives a move. It writes the markers of a transaction a
little later, each at a time of its own. Until the last one is written, requests of the producer's
next transaction are answered CONCURRENT_TRANSACTIONS.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from simulation.transactions import transaction_responses as responses
from simulation.transactions.transaction_events import TransactionEvents

from asyncrevoke.client.model import TopicPartition
from asyncrevoke.client.producing.transactions.requests import (
    IMPLICIT,
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
)
from asyncrevoke.client.protocol.messages import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from asyncrevoke.client.protocol.messages import EntityResponse, Request
    from asyncrevoke.testing.fake_kafka.clock import Alarm, Clock

_AGAIN: Final = 0.05
# The first version of EndTxn that begins the next epoch.
_IMPLICIT_END: Final = 5


class Group(enum.Enum):
    """The other kind of participant: the offsets of the group."""

    OFFSETS = "offsets"


Participant: TypeAlias = TopicPartition | Group


class TransactionState(enum.Enum):
    """The states of a transactional id."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"


_PREPARED: Final = (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)
_COMMITTED: Final = (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)
_ENDED: Final = (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)


class WritesMarkers(Protocol):
    """The partitions and the group, which end a transaction by a marker."""

    def mark(
        self, participant: Participant, producer_id: int, epoch: int, *, committed: bool
    ) -> bool:
        """Write the marker; False if it cannot be written now."""
        ...

    def decided(self, known: TransactionalId, *, committed: bool) -> None:
        """The transaction of this id is committed or aborted; its markers follow."""


@dataclass(slots=True)
class TransactionalId:
    """A transactional id: its producer, and its last transaction.

    ``last_epoch``: the one before ``epoch`` of the same producer, whose requests may be repeated;
    None after another one has taken the id over.
    """

    name: str
    producer_id: int
    timeout: float
    epoch: int = 0
    last_epoch: int | None = None
    state: TransactionState = TransactionState.EMPTY
    participants: set[Participant] = field(default_factory=set[Participant])
    unmarked: set[Participant] = field(default_factory=set[Participant])
    began_at: float = 0.0
    expiry: Alarm | None = None

    @property
    def is_idle(self) -> bool:
        """Whether its last transaction has ended, and all markers are written."""
        return self.state in _ENDED or self.state is TransactionState.EMPTY

    def begin_epoch(self) -> None:
        """Its producer begins the next epoch."""
        self.last_epoch, self.epoch = self.epoch, self.epoch + 1

    def fence(self) -> None:
        """Begin an epoch that no producer has."""
        self.last_epoch, self.epoch = None, self.epoch + 1


class TransactionCoordinator:
    """``version``: the transaction.version of the cluster. ``marker_delay`` returns after how many
    seconds a marker is written. Every ``check_interval`` seconds it aborts what has taken longer
    than its timeout; with ``fences_expired``, the producer of such a transaction may not begin
    another epoch, as before Apache Kafka 4.4 and always below transaction.version 2.
    """

    def __init__(
        self,
        clock: Clock,
        markers: WritesMarkers,
        version: int,
        *,
        marker_delay: Callable[[], float] = lambda: 0.005,
        check_interval: float = 10.0,
        fences_expired: bool = False,
    ) -> None:
        self.version = version
        self.events = TransactionEvents()
        self.is_available: Callable[[], bool] = lambda: True
        self._clock = clock
        self._markers = markers
        self._marker_delay = marker_delay
        self._check_interval = check_interval
        self.fences_expired = fences_expired or version < IMPLICIT
        self._ids: dict[str, TransactionalId] = {}
        self._next_producer_id = 1000

    # --- what others ask -------------------------------------------------------------------------

    def ids(self) -> Iterable[TransactionalId]:
        """All transactional ids."""
        return self._ids.values()

    def find(self, transactional_id: str) -> TransactionalId | None:
        """A transactional id that has a producer."""
        return self._ids.get(transactional_id)

    def forget(self, transactional_id: str) -> None:
        """The id expires, because its producer has been idle."""
        del self._ids[transactional_id]

    @property
    def is_at_rest(self) -> bool:
        """Whether no transaction is open, and each marker is written."""
        return all(known.is_idle for known in self._ids.values())

    def join(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        participant: Participant,
        *,
        implicit: bool,
    ) -> ErrorCode:
        """A leader, or the group's coordinator, is about to write for a transaction: whether it
        may. ``implicit``: the request's version adds it to the transaction, with
        transaction.version 2; otherwise only AddPartitionsToTxn and AddOffsetsToTxn do."""
        known = self._ids.get(transactional_id)
        if not self.is_available():
            return ErrorCode.coordinator_load_in_progress
        if known is None or known.producer_id != producer_id:
            return ErrorCode.invalid_producer_id_mapping
        if epoch != known.epoch:
            return ErrorCode.invalid_producer_epoch
        if known.state in _PREPARED:
            return ErrorCode.concurrent_transactions
        if not implicit or self.version < IMPLICIT:
            is_added = known.state is TransactionState.ONGOING and participant in known.participants
            return ErrorCode.none if is_added else ErrorCode.invalid_txn_state
        self._add(known, (participant,))
        return ErrorCode.none

    # --- requests --------------------------------------------------------------------------------

    def handle(self, client: int, message: Request) -> EntityResponse:
        """The response to a request of a producer."""
        match message:
            case InitProducerIdRequest():
                return self._init_producer_id(message)
            case AddPartitionsToTxnRequest():
                partitions = {
                    TopicPartition(topic.name, number)
                    for topic in message.v3_and_below_topics
                    for number in topic.partitions
                }
                identity = message.v3_and_below_producer_id, message.v3_and_below_producer_epoch
                name = message.v3_and_below_transactional_id
                error = self._add_explicitly(name, *identity, partitions)
                return responses.partitions_added(message, error)
            case AddOffsetsToTxnRequest():
                identity = message.producer_id, message.producer_epoch
                group: set[Participant] = {Group.OFFSETS}
                error = self._add_explicitly(message.transactional_id, *identity, group)
                return responses.group_added(error)
            case EndTxnRequest():
                self.events.end_requested(
                    client, message.transactional_id, committed=message.committed
                )
                return self._end_requested(message)
            case _:
                raise TypeError(f"no transaction coordinator gets {type(message).__name__}")

    def _init_producer_id(self, message: InitProducerIdRequest) -> EntityResponse:
        known = self._ids.get(message.transactional_id)
        if known is None:
            if message.producer_id >= 0:
                return responses.initialized(ErrorCode.invalid_producer_id_mapping)
            timeout = message.transaction_timeout.total_seconds()
            known = TransactionalId(message.transactional_id, self._next_producer_id, timeout)
            self._next_producer_id += 1
            self._ids[message.transactional_id] = known
            return responses.initialized(ErrorCode.none, known.producer_id, known.epoch)
        is_repeated = False
        if message.producer_id >= 0:
            if message.producer_id != known.producer_id:
                return responses.initialized(ErrorCode.producer_fenced)
            is_repeated = message.producer_epoch == known.last_epoch
            if not is_repeated and message.producer_epoch != known.epoch:
                return responses.initialized(ErrorCode.producer_fenced)
        if known.state in _PREPARED:
            return responses.initialized(ErrorCode.concurrent_transactions)
        if known.state is TransactionState.ONGOING:
            known.fence()
            self._decide(known, committed=False, why="fenced")
            return responses.initialized(ErrorCode.concurrent_transactions)
        if not is_repeated:
            if message.producer_id >= 0:
                known.begin_epoch()
            else:
                known.fence()
            known.state = TransactionState.EMPTY
            known.timeout = message.transaction_timeout.total_seconds()
        return responses.initialized(ErrorCode.none, known.producer_id, known.epoch)

    def _add_explicitly(
        self, name: str, producer_id: int, epoch: int, participants: Iterable[Participant]
    ) -> ErrorCode:
        known = self._ids.get(name)
        if known is None or known.producer_id != producer_id:
            return ErrorCode.invalid_producer_id_mapping
        if epoch != known.epoch:
            return ErrorCode.producer_fenced
        if known.state in _PREPARED:
            return ErrorCode.concurrent_transactions
        self._add(known, participants)
        return ErrorCode.none

    def _add(self, known: TransactionalId, participants: Iterable[Participant]) -> None:
        if known.state is not TransactionState.ONGOING:
            known.state, known.began_at = TransactionState.ONGOING, self._clock.now
            known.participants = set()
            self._expire_later(known)
        known.participants.update(participants)

    # --- the end ---------------------------------------------------------------------------------

    def _end_requested(self, message: EndTxnRequest) -> EntityResponse:
        known, committed = self._ids.get(message.transactional_id), message.committed
        if known is None or known.producer_id != message.producer_id:
            return responses.ended(ErrorCode.invalid_producer_id_mapping)
        implicit = self.version >= IMPLICIT and message.highest_version >= _IMPLICIT_END
        error = self._may_end(known, message.producer_epoch, committed=committed, implicit=implicit)
        if error is None:
            if implicit:
                known.begin_epoch()
            self._decide(known, committed=committed, why="requested")
        elif error is not ErrorCode.none:
            return responses.ended(error)
        if implicit:
            return responses.ended(ErrorCode.none, known.producer_id, known.epoch)
        return responses.ended(ErrorCode.none)

    @staticmethod
    def _may_end(
        known: TransactionalId, epoch: int, *, committed: bool, implicit: bool
    ) -> ErrorCode | None:
        """None if the transaction is to be ended; NONE if it was, by the same request."""
        is_repeated = implicit and epoch == known.last_epoch
        if epoch != known.epoch and not (
            is_repeated and known.state not in (TransactionState.ONGOING, TransactionState.EMPTY)
        ):
            return ErrorCode.producer_fenced
        if known.state is TransactionState.ONGOING:
            return None
        if known.state in _PREPARED and implicit and not is_repeated:
            return ErrorCode.producer_fenced
        if (is_repeated or not implicit) and known.state is not TransactionState.EMPTY:
            if committed is not (known.state in _COMMITTED):
                return ErrorCode.invalid_txn_state
            prepared = known.state in _PREPARED
            return ErrorCode.concurrent_transactions if prepared else ErrorCode.none
        # Nothing was written in this epoch.
        return None if implicit and not committed else ErrorCode.invalid_txn_state

    def _decide(self, known: TransactionalId, *, committed: bool, why: str) -> None:
        if known.expiry is not None:
            known.expiry.cancel()
            known.expiry = None
        known.state = (
            TransactionState.PREPARE_COMMIT if committed else TransactionState.PREPARE_ABORT
        )
        known.unmarked, known.participants = known.participants, set()
        self.events.transaction_decided(known.name, committed=committed, why=why)
        self._markers.decided(known, committed=committed)
        for participant in sorted(known.unmarked, key=str):
            self._mark_later(known, participant, known.epoch, committed=committed)
        self._maybe_complete(known)

    def _mark_later(
        self, known: TransactionalId, participant: Participant, epoch: int, *, committed: bool
    ) -> None:
        mark = partial(self._mark, known, participant, epoch, committed=committed)
        self._clock.after(self._marker_delay(), mark)

    def _mark(
        self, known: TransactionalId, participant: Participant, epoch: int, *, committed: bool
    ) -> None:
        written = self.is_available() and self._markers.mark(
            participant, known.producer_id, epoch, committed=committed
        )
        if written:
            known.unmarked.discard(participant)
            self._maybe_complete(known)
        else:
            mark = partial(self._mark, known, participant, epoch, committed=committed)
            self._clock.after(_AGAIN, mark)

    def _maybe_complete(self, known: TransactionalId) -> None:
        if not known.unmarked:
            committed = known.state is TransactionState.PREPARE_COMMIT
            known.state = (
                TransactionState.COMPLETE_COMMIT if committed else TransactionState.COMPLETE_ABORT
            )
            self.events.transaction_completed(known.name, committed=committed)

    # --- timeouts --------------------------------------------------------------------------------

    def _expire_later(self, known: TransactionalId) -> None:
        due = self._clock.now + known.timeout
        at = math.ceil(due / self._check_interval) * self._check_interval
        known.expiry = self._clock.at(at, partial(self._expire, known))

    def _expire(self, known: TransactionalId) -> None:
        if known.state is not TransactionState.ONGOING:
            return
        if not self.is_available():
            known.expiry = self._clock.after(_AGAIN, partial(self._expire, known))
            return
        known.expiry = None
        if self.fences_expired:
            known.fence()
        else:
            known.begin_epoch()
        self._decide(known, committed=False, why="timeout")
