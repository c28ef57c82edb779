"""Members that process exactly once, with one bug each in their transactions; see :mod:`.mutant`.

The first ones break what makes a result visible once. The others do what other clients have lost
data by, or hung: each has the bug that it is named after. What this world does not have is guarded
elsewhere:

- results that a broker refuses: ``unit/producing/transactions/test_transaction_core.py`` and
  ``broker/requests/exactly_once/test_bad_input_for_transactions.py``,
- a position that a late ListOffsets would set: ``unit/core/position/test_position_resolver.py``,
- input with open transactions, whose lag ends at the last stable offset:
  ``broker/requests/exactly_once/test_last_stable_offset.py``,
- which error an old epoch has in TxnOffsetCommit up to version 5:
  ``unit/core/commit/test_transactional_committer.py``,
- records of retry topics and dead letters: ``broker/requests/exactly_once/test_exactly_once.py``.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, cast

from simulation.mutants.mutant import Mutant
from simulation.mutants.mutant_schedules import crashes_amid_slow_tasks
from simulation.schedules.schedule import (
    Disturbance,
    Incident,
    IncidentKind,
    Schedule,
)
from simulation.schedules.transaction_plan import TransactionPlan
from simulation.schedules.transactional_schedules import with_transactions
from simulation.transactions.transaction_responses import ended

from asyncrevoke.client.core.commit import fitting_records
from asyncrevoke.client.core.commit.transactional_committer import (
    ComposedOffsets,
    TransactionalCommitter,
)
from asyncrevoke.client.core.partition.completion_map import EncodedMap
from asyncrevoke.client.core.position import resolver
from asyncrevoke.client.errors import FatalError
from asyncrevoke.client.producing.exactly_once import record_transactions
from asyncrevoke.client.producing.exactly_once.batch_transaction import BatchTransaction
from asyncrevoke.client.producing.exactly_once.finished_records import FinishedRecords
from asyncrevoke.client.producing.exactly_once.record_transactions import RecordTransactions
from asyncrevoke.client.producing.transactions import coordinator, error_table
from asyncrevoke.client.producing.transactions.coordinator import Coordinator
from asyncrevoke.client.producing.transactions.error_table import Action
from asyncrevoke.client.producing.transactions.requests import EndTxnRequest
from asyncrevoke.client.producing.transactions.state_table import TRANSITIONS, Event, State
from asyncrevoke.client.producing.transactions.transaction import PartitionBatches
from asyncrevoke.client.producing.transactions.transaction_commits import TransactionCommits
from asyncrevoke.client.producing.transactions.transaction_core import TransactionCore
from asyncrevoke.client.protocol.messages import ErrorCode, OffsetFetchRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pytest
    from kio.schema.end_txn.v5.response import EndTxnResponse

    from asyncrevoke.client.core.partition.instance import PartitionInstance
    from asyncrevoke.client.core.partition.offset_tracker import OffsetTracker
    from asyncrevoke.client.producing.message import ResultOfRecord
    from asyncrevoke.client.producing.transactions.coordinator import TransactionRequest
    from asyncrevoke.client.protocol.messages import ApiVersionsResponse


def transactions(
    version: int, *, loss: float | None = None, **plan: Any
) -> Callable[[Schedule], Schedule]:
    """Transactions of this transaction.version; ``loss``: of this share of requests."""

    def tweak(schedule: Schedule) -> Schedule:
        drawn = with_transactions(schedule)
        loss_ = schedule.loss if loss is None else loss
        options: dict[str, Any] = {"interval": 0.1, "timeout": 10.0} | plan
        return dataclasses.replace(
            drawn, transactions=TransactionPlan(version, **options), loss=loss_, static=False
        )

    return tweak


def with_incidents(
    tweak: Callable[[Schedule], Schedule], kind: IncidentKind, count: int, amount: float
) -> Callable[[Schedule], Schedule]:
    """So many incidents of a kind, one after another."""

    def more(schedule: Schedule) -> Schedule:
        drawn = tweak(schedule)
        added = tuple(
            Incident(1.5 + 6.0 * number / count, kind, schedule.seed + number, amount)
            for number in range(count)
        )
        incidents = sorted((*drawn.incidents, *added), key=lambda incident: incident.at)
        return dataclasses.replace(drawn, incidents=tuple(incidents), duration=9.0)

    return more


# --- what makes a result visible once -----------------------------------------------------------


def _offsets_before_results(patch: pytest.MonkeyPatch) -> None:
    requests = TransactionCore.requests

    def results_are_done(core: TransactionCore, now: float) -> list[TransactionRequest]:
        outgoing = requests(core, now)
        transaction = core._transaction
        if core.state is State.PRODUCING and transaction is not None and transaction.offsets:
            core._become(Event.OFFSETS_LEFT)
        return outgoing

    patch.setattr(TransactionCore, "requests", results_are_done)


def _release_before_the_end(patch: pytest.MonkeyPatch) -> None:
    begin, is_acknowledged = (
        TransactionalCommitter.begin_transaction,
        TransactionalCommitter.is_acknowledged,
    )

    def completed_at_once(
        self: TransactionalCommitter, now: float, *arguments: Any, **options: Any
    ) -> ComposedOffsets | None:
        composed = begin(self, now, *arguments, **options)
        if composed is not None and composed.entries:
            self._returned_records.complete_offsets(now, composed.completes)
        return composed

    def ignore_open(self: TransactionalCommitter, instance: PartitionInstance) -> bool:
        composed = self._composed
        return is_acknowledged(self, instance) or (
            composed is not None and instance in composed.entries
        )

    patch.setattr(TransactionalCommitter, "begin_transaction", completed_at_once)
    patch.setattr(TransactionalCommitter, "is_acknowledged", ignore_open)


def _map_is_cut(patch: pytest.MonkeyPatch) -> None:
    encoded = fitting_records._encode

    def cut(tracker: OffsetTracker, _limit: int) -> EncodedMap:
        return EncodedMap(encoded(tracker, 14).metadata, None)

    patch.setattr(fitting_records, "_encode", cut)


def _map_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    encoded = fitting_records._encode

    def forget(tracker: OffsetTracker, limit: int) -> EncodedMap:
        found = encoded(tracker, limit)
        return found if tracker.commit_point % 3 else EncodedMap("", None)

    patch.setattr(fitting_records, "_encode", forget)


def _epoch_of_the_end_is_ignored(patch: pytest.MonkeyPatch) -> None:
    ended = TransactionCore._epoch_ended

    def ignore(core: TransactionCore, transaction: Any, _response: object) -> None:
        ended(core, transaction, None)

    patch.setattr(TransactionCore, "_epoch_ended", ignore)


def _outbox_is_not_cleared(patch: pytest.MonkeyPatch) -> None:
    committed = RecordTransactions._committed

    def keep(self: RecordTransactions, composed: ComposedOffsets) -> None:
        committed(self, composed)
        self.finished.put_back({k: v for k, v in self._taken.items() if v})

    patch.setattr(RecordTransactions, "_committed", keep)


def _results_of_lost_partitions_are_kept(patch: pytest.MonkeyPatch) -> None:
    begin = TransactionalCommitter.begin_transaction

    def keep(
        self: TransactionalCommitter, now: float, *arguments: Any, **options: Any
    ) -> ComposedOffsets | None:
        composed = begin(self, now, *arguments, **options)
        if composed is not None:
            if composed.entries:
                composed.included.update(composed.dropped)
            composed.dropped.clear()
        return composed

    def lose(_self: FinishedRecords, _partitions: object) -> None: ...

    patch.setattr(TransactionalCommitter, "begin_transaction", keep)
    patch.setattr(FinishedRecords, "lose", lose)


def _doubtful_end_is_taken_for_an_abort(patch: pytest.MonkeyPatch) -> None:
    async def aborted(*_: object) -> bool:
        return False

    patch.setattr(record_transactions, "was_committed", aborted)


def _no_epoch_after_doubt(patch: pytest.MonkeyPatch) -> None:
    for state in (State.COMMITTING, State.ABORTING):
        patch.setitem(TRANSITIONS[state], Event.ENDED_WITH_LATE_REQUEST, State.READY)


# --- by what others have lost data, or hung ------------------------------------------------------


def _version_by_the_apis_alone(patch: pytest.MonkeyPatch) -> None:
    def newest(_response: ApiVersionsResponse) -> int:
        return 2

    patch.setattr(coordinator, "offered_transaction_version", newest)


def _change(
    error: ErrorCode, action: Action, *tables: Mapping[ErrorCode, Action]
) -> Callable[[pytest.MonkeyPatch], None]:
    def patch_tables(patch: pytest.MonkeyPatch) -> None:
        for table in tables:
            patch.setitem(table, error, action)

    return patch_tables


def _offsets_alone_are_not_committed(patch: pytest.MonkeyPatch) -> None:
    commit = TransactionCommits.commit

    async def records_only(self: TransactionCommits, records: Any, *arguments: Any) -> None:
        if records:
            await commit(self, records, *arguments)

    patch.setattr(TransactionCommits, "commit", records_only)


def _pending_offsets_are_ignored(patch: pytest.MonkeyPatch) -> None:
    def unstable(**fields: Any) -> OffsetFetchRequest:
        fields["require_stable"] = False
        return OffsetFetchRequest(**fields)

    patch.setattr(resolver, "OffsetFetchRequest", unstable)


def _unanswered_batch_gets_another_number(patch: pytest.MonkeyPatch) -> None:
    retry = PartitionBatches.retry

    def renumber(self: PartitionBatches, now: float) -> None:
        self.number += self.left[0].count if self.left else 0
        retry(self, now)

    patch.setattr(PartitionBatches, "retry", renumber)


def _unanswered_batch_counts_as_written(patch: pytest.MonkeyPatch) -> None:
    def written(self: PartitionBatches, _now: float) -> None:
        self.written(-1)

    patch.setattr(PartitionBatches, "retry", written)


def _coordinator_is_not_looked_up_again(patch: pytest.MonkeyPatch) -> None:
    again = Coordinator.again

    def stay(self: Coordinator, now: float, *, find: bool = False) -> None:
        again(self, now, find=find and self._node is None)

    patch.setattr(Coordinator, "again", stay)


def _rejected_offsets_end_the_consumer(patch: pytest.MonkeyPatch) -> None:
    aborted = RecordTransactions._aborted

    def fail(self: RecordTransactions, outcome: Any, *arguments: Any, **options: Any) -> None:
        if outcome == "offsets_rejected":
            raise FatalError("the member is fenced")
        aborted(self, outcome, *arguments, **options)

    patch.setattr(RecordTransactions, "_aborted", fail)


def _next_transaction_is_pipelined(patch: pytest.MonkeyPatch) -> None:
    requests = TransactionCore.requests

    def hasty(core: TransactionCore, now: float) -> list[TransactionRequest]:
        outgoing = requests(core, now)
        for sent in outgoing:
            message = sent.message
            if isinstance(message, EndTxnRequest) and message.committed:
                core._commit_ended(now, cast("EndTxnResponse", ended(ErrorCode.none).entity))
        return outgoing

    patch.setattr(TransactionCore, "requests", hasty)


# --- blocks of batches ---------------------------------------------------------------------------


def _failed_block_counts(patch: pytest.MonkeyPatch) -> None:
    def go_on(_self: BatchTransaction) -> None: ...

    patch.setattr(BatchTransaction, "_go_back", go_on)


def _lost_results_of_block_are_kept(patch: pytest.MonkeyPatch) -> None:
    def all_results(self: BatchTransaction, _lost: object) -> list[ResultOfRecord]:
        return self._results

    patch.setattr(BatchTransaction, "results_without", all_results)


def slow_tasks(tweak: Callable[[Schedule], Schedule]) -> Callable[[Schedule], Schedule]:
    """Some records take seconds, so that others are done beyond them."""
    return lambda schedule: crashes_amid_slow_tasks(tweak(schedule))


def slow_links(tweak: Callable[[Schedule], Schedule]) -> Callable[[Schedule], Schedule]:
    """All packets take up to 50 ms, so that a transaction is open for most of the time."""
    return lambda schedule: dataclasses.replace(tweak(schedule), slow=1.0)


_1, _2 = transactions(1), transactions(2)
_LOSSY_1, _LOSSY_2 = transactions(1, loss=0.15), transactions(2, loss=0.15)
_UNKNOWN = transactions(1, loss=0.05, unknown_outcomes=0.4)
_SLOW_MARKERS = transactions(2, marker_delay=1.0)
_FROZEN = with_incidents(slow_links(_2), IncidentKind.FREEZE, 5, 9.0)
_TIMED_OUT = with_incidents(
    slow_links(transactions(2, timeout=1.0, check_interval=0.2)),
    IncidentKind.MOVE_TRANSACTIONS,
    4,
    1.5,
)
_MOVED = with_incidents(_2, IncidentKind.MOVE_TRANSACTIONS, 4, 0.2)
_BLOCKS = transactions(2, blocks=1.0)
_FROZEN_BLOCKS = with_incidents(slow_links(_BLOCKS), IncidentKind.FREEZE, 5, 9.0)
_FORGOTTEN = with_incidents(_2, IncidentKind.FORGET_ID, 30, 0.0)
_FORGOTTEN_IN_DOUBT = with_incidents(
    transactions(2, unknown_outcomes=0.5), IncidentKind.FORGET_ID, 200, 0.0
)


def _mutant(
    name: str,
    patch: Callable[[pytest.MonkeyPatch], None],
    *caught_by: str,
    tweak: Callable[[Schedule], Schedule],
    disturbance: Disturbance = Disturbance.LOSS,
) -> Mutant:
    return Mutant(name, patch, caught_by, disturbance=disturbance, tweak=tweak)


_CONCURRENT = ErrorCode.concurrent_transactions
MUTANTS = [
    _mutant("offsets before results", _offsets_before_results, "X1", "X3", tweak=_LOSSY_2),
    _mutant("released before the end", _release_before_the_end, "X2", "X3", tweak=_2),
    _mutant("a map that is too long is cut", _map_is_cut, "X1", tweak=slow_tasks(_2)),
    _mutant("a map is forgotten", _map_is_forgotten, "X1", tweak=slow_tasks(_2)),
    _mutant(
        "the epoch in the response to EndTxn is ignored",
        _epoch_of_the_end_is_ignored,
        "fenced",
        tweak=_2,
        disturbance=Disturbance.CALM,
    ),
    _mutant("results stay after their commit", _outbox_is_not_cleared, "X1", "raised", tweak=_2),
    _mutant(
        "results of a lost partition are kept",
        _results_of_lost_partitions_are_kept,
        "X2",
        tweak=_FROZEN,
        disturbance=Disturbance.FAULTS,
    ),
    _mutant(
        "a doubtful end is taken for an abort",
        _doubtful_end_is_taken_for_an_abort,
        "X1",
        tweak=_FORGOTTEN_IN_DOUBT,
    ),
    _mutant("no epoch is begun after doubt", _no_epoch_after_doubt, "X1", tweak=_LOSSY_1),
    _mutant("the version is told by the APIs alone", _version_by_the_apis_alone, "I14", tweak=_1),
    _mutant(
        "CONCURRENT_TRANSACTIONS refuses InitProducerId",
        _change(_CONCURRENT, Action.REFUSED, error_table.INIT_ERRORS),
        "errors",
        tweak=_LOSSY_1,
    ),
    _mutant(
        "CONCURRENT_TRANSACTIONS refuses AddPartitionsToTxn",
        _change(_CONCURRENT, Action.REFUSED, error_table.ADD_ERRORS),
        "refused",
        tweak=_1,
    ),
    _mutant(
        "offsets without results are not committed",
        _offsets_alone_are_not_committed,
        "acknowledged",
        "I14",
        "I17",
        "X1",
        tweak=_2,
    ),
    _mutant(
        "an expired transactional id ends the consumer",
        _change(
            ErrorCode.invalid_producer_id_mapping,
            Action.REFUSED,
            error_table.PRODUCE_ERRORS,
            error_table.ABORT_ERRORS,
        ),
        "errors",
        tweak=_FORGOTTEN,
    ),
    _mutant("pending offsets are ignored", _pending_offsets_are_ignored, "X1", tweak=_SLOW_MARKERS),
    _mutant(
        "a batch without a response gets another number",
        _unanswered_batch_gets_another_number,
        "X1",
        "I14",
        tweak=_LOSSY_2,
    ),
    _mutant(
        "a batch without a response counts as written",
        _unanswered_batch_counts_as_written,
        "X1",
        tweak=_LOSSY_2,
    ),
    _mutant(
        "a coordinator is not looked up again",
        _coordinator_is_not_looked_up_again,
        "I14",
        tweak=_MOVED,
        disturbance=Disturbance.FAULTS,
    ),
    _mutant(
        "UNKNOWN_SERVER_ERROR from EndTxn counts as success",
        _change(ErrorCode.unknown_server_error, Action.DONE, error_table.COMMIT_ERRORS),
        "X1",
        tweak=_UNKNOWN,
    ),
    _mutant(
        "a transaction that the coordinator has aborted counts as committed",
        _change(ErrorCode.invalid_txn_state, Action.DONE, error_table.COMMIT_ERRORS_IMPLICIT),
        "X1",
        "I17",
        tweak=_TIMED_OUT,
        disturbance=Disturbance.FAULTS,
    ),
    _mutant(
        "rejected offsets end the consumer",
        _rejected_offsets_end_the_consumer,
        "errors",
        tweak=_FROZEN,
        disturbance=Disturbance.FAULTS,
    ),
    _mutant(
        "the next transaction begins before the response to EndTxn",
        _next_transaction_is_pipelined,
        "fenced",
        tweak=_2,
        disturbance=Disturbance.CALM,
    ),
    _mutant("the records of a failed block count", _failed_block_counts, "X1", tweak=_BLOCKS),
    _mutant(
        "results of a lost partition stay in a block",
        _lost_results_of_block_are_kept,
        "X1",
        "X2",
        tweak=_FROZEN_BLOCKS,
        disturbance=Disturbance.FAULTS,
    ),
]
