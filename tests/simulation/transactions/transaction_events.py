"""What the brokers of transactions report to the invariants."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from simulation.transactions.output_log import OutputBatch

    from asyncrevoke.client.model import OffsetAndMetadata, TopicPartition


class TransactionEvents:
    """Each method is called after its event. Subclasses override the methods that they need."""

    def end_requested(self, client: int, transactional_id: str, *, committed: bool) -> None:
        """A client has sent EndTxn, which the coordinator is about to process."""

    def transaction_decided(self, transactional_id: str, *, committed: bool, why: str) -> None:
        """The coordinator has written that the transaction is committed or aborted: no request of
        its producer changes that any more. ``why``: "requested", "timeout" or "fenced"."""

    def transaction_completed(self, transactional_id: str, *, committed: bool) -> None:
        """All markers of a transaction are written."""

    def offsets_accepted(self, client: int, offsets: Mapping[TopicPartition, int]) -> None:
        """The group's coordinator has accepted offsets of an open transaction."""

    def offsets_decided(
        self,
        client: int,
        transactional_id: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
    ) -> None:
        """A transaction of this client with these offsets is committed; the marker follows."""

    def batches_ended(
        self, partition: TopicPartition, batches: Sequence[OutputBatch], *, committed: bool
    ) -> None:
        """A marker was written to a partition of results, after these batches."""

    def offsets_committed(
        self,
        client: int,
        offsets: Mapping[TopicPartition, tuple[OffsetAndMetadata | None, OffsetAndMetadata]],
    ) -> None:
        """A marker was written for the group: these offsets, each with the one before."""
