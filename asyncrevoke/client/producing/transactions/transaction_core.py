"""Decides what a transactional producer sends, and what follows from each response. No I/O.

A transaction is complete before its first request: all of its batches are known. Then

    begin
    below transaction.version 2: AddPartitionsToTxn with all partitions, AddOffsetsToTxn
    Produce, one batch of each partition at a time, until each is acknowledged
    TxnOffsetCommit to the coordinator of the group, if the transaction has offsets
    EndTxn (commit)

A request that may have been processed without a response is sent again as it was. After any other
failure nothing may become visible: EndTxn (abort), and the transaction is done again after a
backoff, or fails. One that takes longer than the coordinator allows fails, too: whoever has begun
it decides what a shorter one has.

``state_table.py`` says which state follows, ``error_table.py`` what a response means.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kio.schema.add_offsets_to_txn.v3.response import AddOffsetsToTxnResponse
from kio.schema.add_partitions_to_txn.v3.response import AddPartitionsToTxnResponse
from kio.schema.end_txn.v5.response import EndTxnResponse
from kio.schema.init_producer_id.v3.response import InitProducerIdResponse
from kio.schema.txn_offset_commit.v5.response import TxnOffsetCommitResponse

from asyncrevoke.client.backoff import Backoff
from asyncrevoke.client.core.io.effects import Failed, FailureKind, Replied
from asyncrevoke.client.core.io.fatal_error import FATAL_FAILURES, fatal_error
from asyncrevoke.client.errors import ProducerFencedError, TransactionError
from asyncrevoke.client.producing.requests import find_producer_contradiction
from asyncrevoke.client.producing.transactions.coordinator import (
    Coordinator,
    TransactionCoordinator,
    TransactionRequest,
)
from asyncrevoke.client.producing.transactions.error_table import (
    ABORT_ERRORS,
    ADD_ERRORS,
    ADD_OFFSETS_ERRORS,
    COMMIT_ERRORS,
    COMMIT_ERRORS_IMPLICIT,
    INIT_ERRORS,
    OFFSETS_ERRORS,
    Action,
    gravest,
    refusal,
)
from asyncrevoke.client.producing.transactions.group_offsets import (
    OffsetsRejectedError,
    rejected_as_a_whole,
)
from asyncrevoke.client.producing.transactions.offset_requests import (
    TxnOffsetCommitRequest,
    commit_offsets,
    find_offset_contradiction,
    offset_errors,
)
from asyncrevoke.client.producing.transactions.produce import TransactionProduce
from asyncrevoke.client.producing.transactions.requests import (
    IMPLICIT,
    AddOffsetsToTxnRequest,
    add_offsets,
    add_partitions,
    added_errors,
    end_transaction,
    init_producer_id,
    may_fence_itself,
)
from asyncrevoke.client.producing.transactions.state_table import TRANSITIONS, Event, State
from asyncrevoke.client.producing.transactions.transaction import (
    RecordsRefusedError,
    TransactionTimedOutError,
)
from asyncrevoke.client.protocol.messages import (
    ApiVersionsResponse,
    EntityResponse,
    ErrorCode,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from asyncrevoke.client.model import TopicPartition
    from asyncrevoke.client.producing.queueing.result_topics import ResultTopics
    from asyncrevoke.client.producing.transactions.transaction import Transaction
    from asyncrevoke.client.protocol.messages import Request

_NEVER: Final = float("inf")
_NO_RESPONSE: Final = "a broker has not responded"
_FIRST_BACKOFF: Final = 0.02
_LONGEST_BACKOFF: Final = 1.0
_FENCED: Final = (ErrorCode.producer_fenced, ErrorCode.invalid_producer_epoch)
# Of EndTxn: a coordinator that has appended to its log, and could not replicate it in time or is no
# longer the leader, responds with the last two.
_MAY_BE_PROCESSED: Final = (
    ErrorCode.request_timed_out,
    ErrorCode.unknown_server_error,
    ErrorCode.coordinator_not_available,
    ErrorCode.not_coordinator,
)
# Of TxnOffsetCommit, for an old member epoch: the first one up to version 5.
_STALE: Final = frozenset((ErrorCode.illegal_generation, ErrorCode.stale_member_epoch))
# Seconds in which a request that got no response may still be processed.
_LATE: Final = 60.0
# Seconds that the coordinator may take, beyond the transaction's timeout, to abort it: it looks
# every 10 s (transaction.abort.timed.out.transaction.cleanup.interval.ms).
_ABORTED_WITHIN: Final = 20.0
# The part of the transaction's timeout after which the producer aborts what is not written. Below
# transaction.version 2, a producer whose transaction the coordinator has aborted is fenced.
_WRITTEN_WITHIN: Final = 0.9


class TransactionCore:
    """One transaction at a time, of the producer with this transactional id.

    Whoever owns ``topics`` requests their metadata. ``timeout``: seconds after which the
    coordinator aborts a transaction that has not ended. ``ended`` is called when the present
    transaction has ended; its sinks have been told before. ``last_failure``: why a request of it
    has last failed, for errors; that of the last transaction while there is no other.
    """

    def __init__(
        self,
        topics: ResultTopics,
        transactional_id: str,
        *,
        timeout: float,
        request_timeout: float,
        metadata_max_age: float,
        ended: Callable[[], None] = lambda: None,
    ) -> None:
        self._topics = topics
        self.transactional_id = transactional_id
        self._timeout = timeout
        self._produce = TransactionProduce(
            topics, transactional_id, request_timeout=request_timeout
        )
        self._metadata_max_age = metadata_max_age
        self._ended = ended
        self.state = State.UNINITIALIZED
        self.last_failure = _NO_RESPONSE
        # Why every transaction fails, in the state FATAL.
        self.fatal: Exception | None = None
        self._transaction: Transaction | None = None
        self._coordinator = TransactionCoordinator(transactional_id, self._topics)
        # That of the group whose offsets were last committed.
        self._group: Coordinator | None = None
        self._producer_id = self._epoch = -1
        # The next sequence number of each partition, in this epoch.
        self._numbers: dict[TopicPartition, int] = {}
        # Whether a request of this epoch may still arrive late.
        self._has_late_request = False
        # Whether being fenced may follow from a late request of this producer.
        self._fenced_by_itself_until = 0.0
        # Whether EndTxn (commit) of the present transaction was sent, and whether one of those
        # before may have been processed.
        self._commit_sent = False
        self._commit_in_doubt = False
        # Whether the last transaction may be committed or aborted later: until the next epoch.
        self._end_in_doubt = False
        # The one that the present epoch was begun with.
        self._used_version = 0
        self._give_up_at = _NEVER
        # When its present attempt is aborted if it is not written.
        self._abort_at = _NEVER
        # A transaction that is done again is not begun before.
        self._begin_at = 0.0
        self._backoff = Backoff(_FIRST_BACKOFF, _LONGEST_BACKOFF)

    # --- transactions ----------------------------------------------------------------------------

    @property
    def is_free(self) -> bool:
        """Whether :meth:`begin` may be called."""
        return self._transaction is None

    def begin(self, transaction: Transaction) -> None:
        """Write and commit this. Call :meth:`requests` after it."""
        assert self._transaction is None
        self._transaction, self._abort_at = transaction, _NEVER
        self.last_failure = _NO_RESPONSE
        if self.fatal is not None:
            self._fail(self.fatal)

    def settle(self) -> bool:
        """Whether each transaction is committed or aborted, those of former producers included, as
        InitProducerId makes sure of."""
        self._end_in_doubt |= self.state is State.UNINITIALIZED
        return self._transaction is None and not self._end_in_doubt

    def cancel(self, now: float, error: Exception) -> bool:
        """Abort the present transaction, which then fails with this error. False if its commit was
        sent, or if there is none.

        With transaction.version 2 no response is waited for before, as a request that is late is
        rejected."""
        if self._transaction is None or self._commit_sent:
            return False
        self._give_up(error)
        if self._is_implicit:
            self._abort_at = min(self._abort_at, now)
        return True

    def fail_all(self, error: Exception) -> None:
        """Every transaction fails with this error from now on."""
        self.fatal, self.state = error, State.FATAL
        if self._transaction is not None:
            self._fail(error)

    def _give_up(self, error: Exception) -> None:
        transaction = self._transaction
        assert transaction is not None
        match self.state:
            case State.ADDING | State.PRODUCING | State.OFFSETS | State.COMMITTING:
                transaction.error = error
                self._become(Event.REFUSED)
            case State.ABORTING:
                transaction.error = error
            case _:
                self._fail(error)

    def _become(self, event: Event) -> None:
        self.state = TRANSITIONS[self.state][event]
        self._coordinator.step_done()

    def _begin_again(self, now: float) -> None:
        """Nothing of the transaction is visible: it fails, or begins again after a backoff."""
        transaction = self._transaction
        if transaction is None:
            return
        if transaction.error is not None:
            self._fail(transaction.error)
            return
        if now < self._abort_at:
            self._abort_at = _NEVER
        transaction.begin_again()
        self._begin_at = now + self._backoff.failed()

    def _fail(self, error: Exception) -> None:
        transaction, self._transaction = self._transaction, None
        assert transaction is not None
        transaction.failed(error)
        self._ended()

    def _start(self, now: float, transaction: Transaction) -> None:
        """A producer id is known: begin with the first request of the transaction."""
        for partition, batches in transaction.partitions.items():
            batches.number = self._numbers.get(partition, 0)
        self._commit_sent = self._commit_in_doubt = False
        self._give_up_at = now + self._timeout + _ABORTED_WITHIN
        self._abort_at = now + self._timeout * _WRITTEN_WITHIN
        if not self._is_implicit:
            self._become(Event.BEGUN_EXPLICIT)
        else:
            self._become(Event.BEGUN if transaction.partitions else Event.OFFSETS_LEFT)

    # --- requests --------------------------------------------------------------------------------

    def requests(self, now: float) -> list[TransactionRequest]:
        """The requests to send now. Call :meth:`response_received` for each."""
        self._expire(now)
        outgoing: list[TransactionRequest] = []
        transaction = self._transaction
        if self.state is State.READY and transaction is not None:
            self._coordinator.forget_version(older_than=now - self._metadata_max_age)
            if self._coordinator.version is not None and self._begin_at <= now:
                self._start(now, transaction)
        if self.state is State.PRODUCING and transaction is not None:
            identity, by_id = (self._producer_id, self._epoch), self._is_implicit
            outgoing += self._produce.requests(now, transaction, identity, by_id=by_id)
        elif self.state is State.OFFSETS and transaction is not None:
            outgoing += self._offsets_request(now, transaction)
        elif self.state is State.ABORTING and transaction is not None:
            self._abort_nothing(now, transaction)
        if self._coordinator.is_due(now):
            outgoing += self._coordinator_request(now)
        return outgoing

    def _abort_nothing(self, now: float, transaction: Transaction) -> None:
        """Below transaction.version 2, EndTxn without any partition is an error."""
        asked = self._coordinator.asked
        if asked is not None and may_fence_itself(asked):
            # It may add something.
            return
        if not (self._is_implicit or transaction.has_added or self._has_late_request):
            self._epoch_ended(transaction, None)
            self._begin_again(now)

    def _coordinator_request(self, now: float) -> Iterator[TransactionRequest]:
        """The next request to the coordinator, if one is due."""
        transaction, message = self._transaction, self._next_message(now)
        if message is not None:
            outgoing = self._coordinator.ask(message)
            self._commit_sent |= self.state is State.COMMITTING and outgoing.message is message
            yield outgoing
        elif (
            (transaction is not None or self._end_in_doubt)
            and self._coordinator.version is None
            and self.state in (State.UNINITIALIZED, State.READY)
        ):
            yield self._coordinator.ask_version()

    def _next_message(self, now: float) -> Request | None:
        transaction, identity = self._transaction, (self._producer_id, self._epoch)
        match self.state:
            case State.UNINITIALIZED if (
                transaction or self._end_in_doubt
            ) and self._coordinator.version is not None:
                return init_producer_id(self.transactional_id, self._timeout)
            case State.BUMPING:
                return init_producer_id(self.transactional_id, self._timeout, *identity)
            case State.ADDING if transaction is not None:
                if missing := transaction.missing:
                    return add_partitions(self.transactional_id, *identity, missing)
                assert transaction.offsets is not None
                group_id = transaction.offsets.identity.group_id
                return add_offsets(self.transactional_id, *identity, group_id)
            case State.COMMITTING | State.ABORTING if transaction is not None:
                if self._is_in_flight(transaction):
                    if now < self._abort_at:
                        return None
                    # Its response may take longer than the coordinator allows.
                    self._has_late_request, self._group = True, None
                return end_transaction(
                    self.transactional_id,
                    *identity,
                    committed=self.state is State.COMMITTING,
                    version=self._used_version,
                )
            case _:
                return None

    def _is_in_flight(self, transaction: Transaction) -> bool:
        """Whether a request of the transaction is in flight that its end has to wait for."""
        group = self._group
        if group is not None and isinstance(group.asked, TxnOffsetCommitRequest):
            return True
        return any(batches.in_flight for batches in transaction.partitions.values())

    def _offsets_request(
        self, now: float, transaction: Transaction
    ) -> Iterator[TransactionRequest]:
        offsets = transaction.offsets
        assert offsets is not None
        find = FindCoordinatorRequest(group_id=offsets.identity.group_id)
        if self._group is None or self._group.find != find:
            self._group = Coordinator(find, self._topics)
        if self._group.is_due(now):
            identity, version = (self._producer_id, self._epoch), self._used_version
            message = commit_offsets(self.transactional_id, *identity, offsets, version=version)
            yield self._group.ask(message)

    def next_at(self, now: float) -> float:
        """When to call :meth:`requests` again if no response comes before."""
        due = _NEVER
        transaction = self._transaction
        if transaction is None and not self._end_in_doubt and self.state is not State.BUMPING:
            return due
        for asked in (self._coordinator, self._group):
            if asked is not None and asked.asked is None and asked.retry_at > now:
                due = min(due, asked.retry_at)
        if transaction is not None:
            due = min(due, self._deadline(transaction))
            due = min(due, *(at for at in (self._begin_at, self._abort_at) if at > now), _NEVER)
            for batches in transaction.partitions.values():
                if not batches.in_flight and batches.left and batches.retry_at > now:
                    due = min(due, batches.retry_at)
        return due

    def _deadline(self, transaction: Transaction) -> float:
        ending = self.state in (State.COMMITTING, State.ABORTING)
        return self._give_up_at if ending else min(transaction.give_up_at, self._abort_at)

    def _expire(self, now: float) -> None:
        transaction = self._transaction
        if transaction is None or now < self._deadline(transaction):
            return
        match self.state:
            case State.COMMITTING:
                self._doubtful()
            case State.ABORTING:
                transaction.error = transaction.error or TransactionError(self.last_failure)
                self._become(Event.ENDED_WITH_LATE_REQUEST)
                self._begin_again(now)
            case _:
                in_time = now < self._abort_at
                why = self.last_failure if in_time else "it takes longer than transaction_timeout"
                if waits_for := self._produce.waits_for(transaction):
                    why = f"{waits_for}; {why}"
                self._give_up(TransactionTimedOutError(f"not committed in time: {why}"))

    # --- responses -------------------------------------------------------------------------------

    def response_received(
        self, now: float, outgoing: TransactionRequest, reply: Replied | Failed
    ) -> None:
        """Process the response of a request, or its failure."""
        if isinstance(reply, Replied):
            wrong = find_producer_contradiction(outgoing.message, reply.message)
            wrong = wrong or find_offset_contradiction(outgoing.message, reply.message)
            if wrong is not None:
                detail = f"a broker has sent an impossible response: {wrong}"
                reply = Failed(reply.request_id, FailureKind.MALFORMED, detail)
        failed = reply if isinstance(reply, Failed) else None
        if failed is not None:
            self.last_failure = failed.detail or failed.kind.value
        message = reply.message if isinstance(reply, Replied) else None
        if outgoing.batches:
            self._produced(now, outgoing, failed or message)
            return
        assert outgoing.coordinator is not None
        outgoing.coordinator.answered()
        if outgoing.coordinator is not self._coordinator:
            self._group_replied(now, outgoing, message, failed)
        elif failed is not None:
            self._coordinator_failed(now, outgoing.message, failed)
        elif isinstance(message, FindCoordinatorResponse):
            self._found(now, message)
        elif isinstance(message, ApiVersionsResponse):
            self._versions_received(now, message)
        elif isinstance(message, EntityResponse):
            self._coordinator_replied(now, message.entity)

    def _coordinator_failed(self, now: float, message: Request, failed: Failed) -> None:
        if failed.kind is FailureKind.UNSUPPORTED and isinstance(message, AddOffsetsToTxnRequest):
            self._reject(fatal_error(failed))
            return
        if failed.kind in FATAL_FAILURES:
            self._refused(now, fatal_error(failed))
            return
        if failed.kind is FailureKind.UNREACHABLE:
            self._commit_sent &= self._commit_in_doubt
        else:
            self._has_late_request |= self.state in (State.ADDING, State.ABORTING, State.COMMITTING)
            self._commit_in_doubt |= self.state is State.COMMITTING
            if may_fence_itself(message) or now < self._fenced_by_itself_until:
                self._fenced_by_itself_until = now + _LATE
        self._coordinator.again(now, find=True)

    def _found(self, now: float, response: FindCoordinatorResponse) -> None:
        if response.error is not ErrorCode.none:
            self.last_failure = refusal(response.error)
        if not self._coordinator.found(now, response):
            self._refused(now, TransactionError(f"{self.transactional_id}: {self.last_failure}"))

    def _versions_received(self, now: float, response: ApiVersionsResponse) -> None:
        self._coordinator.versions_received(now, response)
        version = self._coordinator.version
        if self.state is State.READY and version not in (None, self._used_version):
            # It changes between transactions only, and with the epoch.
            self._become(Event.FENCED)

    def _coordinator_replied(self, now: float, response: object) -> None:
        match self.state, response:
            case State.UNINITIALIZED | State.BUMPING, InitProducerIdResponse():
                self._initialized(now, response)
            case State.ADDING, AddPartitionsToTxnResponse():
                self._added(now, added_errors(response))
            case State.ADDING, AddOffsetsToTxnResponse():
                self._group_added(now, response.error_code)
            case State.COMMITTING, EndTxnResponse():
                self._commit_ended(now, response)
            case State.ABORTING, EndTxnResponse():
                self._abort_ended(now, response)
            case _:
                # Of a state that the deadline has ended.
                self._has_late_request = True

    def _initialized(self, now: float, response: InitProducerIdResponse) -> None:
        error = response.error_code
        action = INIT_ERRORS.get(error, Action.REFUSED)
        if action is Action.DONE:
            self._producer_id, self._epoch = response.producer_id, response.producer_epoch
            self._used_version = self._coordinator.version or 0
            self._numbers.clear()
            self._has_late_request = self._end_in_doubt = False
            self._become(Event.INITIALIZED)
            return
        self.last_failure = refusal(error)
        if error in _FENCED and now < self._fenced_by_itself_until:
            action, self._fenced_by_itself_until = Action.ID_EXPIRED, 0.0
        if action is Action.ID_EXPIRED and self.state is State.BUMPING:
            self._become(Event.ID_EXPIRED)
        elif action in (Action.REFUSED, Action.ID_EXPIRED):
            kind = ProducerFencedError if error in _FENCED else TransactionError
            self._refused(now, kind(f"{self.transactional_id}: {refusal(error)}"))
        else:
            self._coordinator.again(now, find=action is Action.FIND)

    def _refused(self, now: float, error: Exception) -> None:
        """No further transaction can succeed, or this one cannot."""
        if self.state in (State.COMMITTING, State.ABORTING):
            # Whatever the connection's fault is, EndTxn may succeed on another one.
            self._coordinator.again(now, find=True)
            return
        self.fail_all(error)

    def _added(self, now: float, errors: Mapping[TopicPartition, ErrorCode]) -> None:
        transaction = self._transaction
        assert transaction is not None
        actions: list[Action] = []
        for partition in transaction.missing:
            error = errors.get(partition, ErrorCode.operation_not_attempted)
            action = ADD_ERRORS.get(error, Action.REFUSED)
            actions.append(action)
            if action is Action.DONE:
                transaction.added.add(partition)
            else:
                self.last_failure = refusal(error)
            if action is Action.REFUSED:
                tokens = transaction.partitions[partition].tokens
                transaction.error = RecordsRefusedError(partition.topic, refusal(error), tokens)
        if self._go_on(now, self._coordinator, gravest(actions)):
            self._adding_done(transaction)

    def _group_added(self, now: float, error: ErrorCode) -> None:
        transaction = self._transaction
        assert transaction is not None
        assert transaction.offsets is not None
        action = ADD_OFFSETS_ERRORS.get(error, Action.REFUSED)
        if action is not Action.DONE:
            self.last_failure = refusal(error)
        self._has_late_request |= action is Action.IN_DOUBT
        if error is ErrorCode.transactional_id_authorization_failed:
            transaction.error = TransactionError(f"{self.transactional_id}: {refusal(error)}")
        elif action is Action.REFUSED:
            transaction.error = rejected_as_a_whole(transaction.offsets, error)
        if self._go_on(now, self._coordinator, action):
            transaction.is_group_added = True
            self._adding_done(transaction)

    def _adding_done(self, transaction: Transaction) -> None:
        if transaction.is_group_missing:
            self._coordinator.step_done()
        else:
            self._become(Event.ADDED if transaction.partitions else Event.OFFSETS_LEFT)

    def _go_on(self, now: float, coordinator: Coordinator, action: Action) -> bool:
        """Whether the request before an end is done; otherwise do what its response requires."""
        if action is Action.DONE:
            return True
        if not self._ends_early(now, action):
            if action is Action.REFRESH:
                self._topics.refresh(now)
            coordinator.again(now, find=action is Action.FIND)
        return False

    def _ends_early(self, now: float, action: Action) -> bool:
        """Whether this action ends the transaction before its commit, or its abort."""
        match action:
            case Action.FENCED:
                self._fenced(now, Event.FENCED)
            case Action.ID_EXPIRED:
                self._fenced(now, Event.ID_EXPIRED)
            case Action.REFUSED | Action.REDO:
                self._become(Event.REFUSED)
            case Action.DOWNGRADED:
                self._coordinator.forget_version()
                self._become(Event.REFUSED)
            case _:
                return False
        return True

    # --- offsets -------------------------------------------------------------------------------

    def _group_replied(
        self, now: float, outgoing: TransactionRequest, message: object, failed: Failed | None
    ) -> None:
        """The group's coordinator has responded, or the broker that was asked for it."""
        group, transaction, asked = outgoing.coordinator, self._transaction, outgoing.message
        assert group is not None
        is_commit = isinstance(asked, TxnOffsetCommitRequest)
        if isinstance(asked, TxnOffsetCommitRequest) and not self._is_of_this_epoch(asked):
            # Of a transaction that has ended without it.
            return
        if failed is not None:
            self._has_late_request |= is_commit and failed.kind is not FailureKind.UNREACHABLE
            if failed.kind in FATAL_FAILURES:
                self._reject(fatal_error(failed))
            group.again(now, find=True)
        elif isinstance(message, FindCoordinatorResponse):
            if message.error is not ErrorCode.none:
                self.last_failure = refusal(message.error)
            if not group.found(now, message) and transaction and transaction.offsets:
                self._reject(rejected_as_a_whole(transaction.offsets, message.error))
        elif isinstance(message, EntityResponse):
            assert isinstance(message.entity, TxnOffsetCommitResponse)
            self._offsets_ended(now, group, message.entity)

    def _is_of_this_epoch(self, asked: TxnOffsetCommitRequest) -> bool:
        return (asked.producer_id, asked.producer_epoch) == (self._producer_id, self._epoch)

    def _offsets_ended(
        self, now: float, group: Coordinator, response: TxnOffsetCommitResponse
    ) -> None:
        transaction = self._transaction
        if transaction is None or transaction.offsets is None:
            return
        errors = offset_errors(transaction.offsets, response)
        actions = {
            partition: OFFSETS_ERRORS.get(error, Action.REFUSED)
            for partition, error in errors.items()
        }
        self._has_late_request |= Action.IN_DOUBT in actions.values()
        if self.state is not State.OFFSETS:
            return
        for error in errors.values():
            if error is not ErrorCode.none:
                self.last_failure = refusal(error)
        action = gravest(actions.values())
        if _STALE.issuperset(errors.values()) and self._renew_identity(now, group, transaction):
            return
        if (denied := ErrorCode.transactional_id_authorization_failed) in errors.values():
            transaction.error = TransactionError(f"{self.transactional_id}: {refusal(denied)}")
        elif action is Action.REFUSED:
            group_id = transaction.offsets.identity.group_id
            rejected = {
                partition: error
                for partition, error in errors.items()
                if actions[partition] is Action.REFUSED
            }
            transaction.error = OffsetsRejectedError(group_id, rejected)
        if self._go_on(now, group, action):
            group.step_done()
            self._become(Event.WRITTEN)

    def _renew_identity(self, now: float, group: Coordinator, transaction: Transaction) -> bool:
        """Send the offsets again with the member's present epoch. False if they must not be."""
        offsets = transaction.offsets
        assert offsets is not None
        identity = offsets.renewed(offsets.identity)
        if identity is None:
            return False
        if identity == offsets.identity:
            group.again(now)
        else:
            transaction.offsets = offsets._replace(identity=identity)
            group.step_done()
        return True

    def _reject(self, error: Exception) -> None:
        """The offsets cannot be committed: abort, and fail with this error."""
        transaction = self._transaction
        if transaction is not None and self.state in (State.ADDING, State.OFFSETS):
            transaction.error = error
            self._become(Event.REFUSED)

    def _fenced(self, now: float, event: Event) -> None:
        """The coordinator has aborted the transaction, or another producer has its id."""
        self._become(event)
        self._begin_again(now)

    # --- Produce -------------------------------------------------------------------------------

    def _produced(self, now: float, outgoing: TransactionRequest, reply: object) -> None:
        transaction = self._transaction
        produced = self._produce.ended(now, outgoing, transaction, reply)
        self.last_failure = produced.failure or self.last_failure
        self._has_late_request |= produced.is_late
        if self.state is not State.PRODUCING or transaction is None:
            return
        if not self._ends_early(now, produced.action) and transaction.report_if_written():
            self._become(Event.OFFSETS_LEFT if transaction.offsets else Event.WRITTEN)

    # --- the end ---------------------------------------------------------------------------------

    def _commit_ended(self, now: float, response: EndTxnResponse) -> None:
        table = COMMIT_ERRORS_IMPLICIT if self._is_implicit else COMMIT_ERRORS
        action = table.get(response.error_code, Action.DOUBTFUL)
        if action is Action.FENCED:
            action = Action.DOUBTFUL if self._commit_in_doubt else Action.ABORTED
        self._commit_in_doubt |= response.error_code in _MAY_BE_PROCESSED
        self._commit_sent = self._commit_in_doubt and action not in (Action.REDO, Action.ABORTED)
        match action:
            case Action.DONE:
                transaction, self._transaction = self._transaction, None
                assert transaction is not None
                self._backoff.succeeded()
                self._epoch_ended(transaction, response)
                transaction.committed()
                self._ended()
            case Action.REDO:
                self._become(Event.REFUSED)
            case Action.ABORTED:
                self._become(Event.ABORTED_BY_COORDINATOR)
                self._begin_again(now)
            case Action.DOUBTFUL:
                self.last_failure = refusal(response.error_code)
                self._doubtful()
            case _:
                self.last_failure = refusal(response.error_code)
                self._coordinator.again(now, find=action is Action.FIND)

    def _doubtful(self) -> None:
        self._become(Event.DOUBTFUL)
        self._end_in_doubt = True
        why = f"it is not known whether the transaction was committed: {self.last_failure}"
        self._fail(TransactionError(why, in_doubt=True))

    def _abort_ended(self, now: float, response: EndTxnResponse) -> None:
        action = ABORT_ERRORS.get(response.error_code, Action.REFUSED)
        if action is Action.DONE:
            assert self._transaction is not None
            self._epoch_ended(self._transaction, response)
            self._begin_again(now)
            return
        self.last_failure = refusal(response.error_code)
        if action is Action.REFUSED:
            self.fail_all(TransactionError(f"{self.transactional_id}: {self.last_failure}"))
        elif not self._ends_early(now, action):
            self._coordinator.again(now, find=action is Action.FIND)

    def _epoch_ended(self, transaction: Transaction, response: EndTxnResponse | None) -> None:
        """EndTxn is acknowledged, or was not needed: take the next epoch if the response has it."""
        for partition, batches in transaction.partitions.items():
            self._numbers[partition] = batches.number
        if response is not None and self._is_implicit and response.producer_id >= 0:
            self._producer_id, self._epoch = response.producer_id, response.producer_epoch
            self._numbers.clear()
            self._has_late_request = False
        self._become(Event.ENDED_WITH_LATE_REQUEST if self._has_late_request else Event.ENDED)

    @property
    def _is_implicit(self) -> bool:
        return self._used_version >= IMPLICIT
