"""A transactional producer's core with brokers, over a network that loses what a test says."""

from __future__ import annotations

import heapq
import itertools
from typing import TYPE_CHECKING

from unit.producing.transactions.transaction_brokers import TOPIC, TransactionBrokers

from asyncrevoke.client.core.io.effects import Failed, FailureKind, Node, Replied
from asyncrevoke.client.model import GroupMetadata, TopicPartition
from asyncrevoke.client.producing.queueing.result_topics import ResultTopics
from asyncrevoke.client.producing.record_batch import ResultBatch
from asyncrevoke.client.producing.transactions.group_offsets import GroupOffsets
from asyncrevoke.client.producing.transactions.transaction import Transaction
from asyncrevoke.client.producing.transactions.transaction_core import TransactionCore
from asyncrevoke.client.protocol.messages import CommitEntry, ErrorCode, MetadataResponse

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from asyncrevoke.client.producing.transactions.coordinator import TransactionRequest

REQUEST_TIMEOUT = 5.0
INPUT = "orders"
_LATENCY = 0.002


class Ends:
    """The end of one transaction: its error, and how many records were acknowledged."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.acknowledged = self.failed = 0
        self.has_ended = False

    def ended(self, error: Exception | None) -> None:
        assert not self.has_ended
        self.has_ended, self.error = True, error

    def results_acknowledged(self, tokens: Sequence[object], *_: object) -> None:
        self.acknowledged += len(tokens)

    def results_failed(self, tokens: Sequence[object], error: Exception) -> None:
        assert error is not None
        self.failed += len(tokens)


class Setting:
    """``faults(outgoing)`` says what becomes of a request: "response", "lost" (it does not arrive),
    "response lost", "late" (it arrives after the producer has given it up), "unreachable", "not
    coordinator" (which the broker responds), or "timed out" (which the broker responds before it
    processes the request)."""

    def __init__(self, brokers: TransactionBrokers) -> None:
        self.brokers = brokers
        self.now = 0.0
        topics = ResultTopics(
            [Node(-1, "a", 1)], metadata_max_age=300.0, request_timeout=REQUEST_TIMEOUT
        )
        topics.want(0.0, TOPIC)
        request = topics.request(0.0)
        assert request is not None
        metadata = brokers.handle(request)
        assert isinstance(metadata, MetadataResponse)
        topics.received(0.0, Node(-1, "a", 1), metadata, {})
        self.core = TransactionCore(
            topics, "id", timeout=60.0, request_timeout=REQUEST_TIMEOUT, metadata_max_age=300.0
        )
        self.sent: list[TransactionRequest] = []
        self.faults: Callable[[TransactionRequest], str] = lambda _: "response"
        # Seconds after which a broker processes a request that it has responded REQUEST_TIMED_OUT
        # to.
        self.processed_after = 0.02
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()

    def at(self, when: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._events, (when, next(self._order), action))

    def transaction(
        self,
        values: dict[int, list[bytes]],
        longest: float = 15.0,
        compression: int = 0,
        offsets: GroupOffsets | None = None,
    ) -> Ends:
        """Begin a transaction with one batch for each partition."""
        ends = Ends()
        batches: list[tuple[TopicPartition, ResultBatch]] = []
        for number, content in values.items():
            batch = ResultBatch(float("inf"), compression, transactional=True)
            for value in content:
                batch.append(1, None, value, [], ends, value)
            batch.close()
            batches.append((TopicPartition(TOPIC, number), batch))
        self.core.begin(Transaction(batches, self.now + longest, offsets, ends.ended))
        return ends

    def run(self, until: Callable[[], bool] | None = None, longest: float = 300.0) -> None:
        """Let time pass until the transaction has ended."""
        done, end = until or (lambda: self.core.is_free), self.now + longest
        self._send()
        while not done():
            due = self.core.next_at(self.now)
            coming = self._events[0][0] if self._events else float("inf")
            assert min(due, coming) < float("inf"), f"{self.core.state}: nothing is due"
            if coming <= due:
                self.now, _, action = heapq.heappop(self._events)
                action()
            else:
                self.now = due
            assert self.now < end, f"{self.core.state} lasts for ever"
            self._send()

    def settle(self) -> None:
        """All that is late arrives."""
        while self._events:
            self.now, _, action = heapq.heappop(self._events)
            action()
            self._send()

    def _send(self) -> None:
        for outgoing in self.core.requests(self.now):
            self.sent.append(outgoing)
            self._deliver(outgoing, self.faults(outgoing))

    def _deliver(self, outgoing: TransactionRequest, fault: str) -> None:
        def answer() -> None:
            if fault == "not coordinator":
                message = self.brokers.rejected(outgoing.message, ErrorCode.not_coordinator)
            else:
                message = self.brokers.handle(outgoing.message)
            if self.brokers.completing is not None:
                self.at(self.now + 0.01, self.brokers.complete)
            if fault in ("response", "not coordinator"):
                reply = Replied(0, message)
                self.at(self.now + _LATENCY, lambda: self._received(outgoing, reply))

        if fault == "unreachable":
            failed = Failed(0, FailureKind.UNREACHABLE, "refused")
            self.at(self.now + _LATENCY, lambda: self._received(outgoing, failed))
            return
        if fault == "timed out":
            reply = Replied(0, self.brokers.rejected(outgoing.message, ErrorCode.request_timed_out))
            self.at(self.now + _LATENCY, lambda: self._received(outgoing, reply))
            self.at(self.now + self.processed_after, answer)
            return
        if fault in ("response", "response lost", "not coordinator"):
            self.at(self.now + _LATENCY, answer)
        if fault == "late":
            self.at(self.now + REQUEST_TIMEOUT + 0.05, answer)
        if fault not in ("response", "not coordinator"):
            failed = Failed(0, FailureKind.TIMEOUT, "no response")
            self.at(self.now + REQUEST_TIMEOUT, lambda: self._received(outgoing, failed))

    def _received(self, outgoing: TransactionRequest, reply: Replied | Failed) -> None:
        self.core.response_received(self.now, outgoing, reply)

    def visible(self) -> list[list[bytes]]:
        return [log.visible for log in self.brokers.logs]


def offsets_of(
    entries: dict[int, int], generation: int = 1, metadata: dict[int, str] | None = None
) -> GroupOffsets:
    """Offsets of partitions of the topic that the group reads."""
    return GroupOffsets(
        GroupMetadata("readers", generation, "member"),
        tuple(
            CommitEntry(
                partition=TopicPartition(INPUT, number),
                offset=offset,
                metadata=(metadata or {}).get(number, ""),
            )
            for number, offset in entries.items()
        ),
    )
