"""The simulated brokers of transactions respond as Apache Kafka's, and keep what was decided."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from simulation.brokers.simulated_classic_group import SimulatedClassicGroup
from simulation.brokers.simulation_clock import SimulationClock
from simulation.transactions.transactional_brokers import TransactionalBrokers

from asyncrevoke.client.model import GroupMetadata, OffsetAndMetadata, TopicPartition
from asyncrevoke.client.producing.record_batch import BatchSequence, ResultBatch
from asyncrevoke.client.producing.requests import partition_responses, produce_request
from asyncrevoke.client.producing.transactions.group_offsets import GroupOffsets
from asyncrevoke.client.producing.transactions.offset_requests import commit_offsets
from asyncrevoke.client.producing.transactions.requests import (
    add_offsets,
    add_partitions,
    end_transaction,
    init_producer_id,
)
from asyncrevoke.client.protocol.messages import (
    CommitEntry,
    EntityResponse,
    ErrorCode,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from asyncrevoke.testing.fake_kafka.consumer_group import topic_id

if TYPE_CHECKING:
    from asyncrevoke.client.protocol.messages import Request, Response

INPUT, OUTPUT = TopicPartition("a", 0), TopicPartition("results", 0)
NONE = ErrorCode.none


class _Sink:
    def results_acknowledged(self, *_: object) -> None:
        raise AssertionError

    def results_failed(self, *_: object) -> None:
        raise AssertionError


class Producer:
    """Sends the requests of one transactional id, each as soon as it is told."""

    def __init__(self, version: int, **options: Any) -> None:
        self.clock = SimulationClock()
        group = SimulatedClassicGroup(self.clock)
        self.brokers = TransactionalBrokers(
            self.clock, Random(1), 2, group, version, marker_delay=lambda: 0.01, **options
        )
        self.brokers.create_topic("a", 1)
        self.brokers.create_output("results", 1)
        self.version = version
        self.identity = (-1, -1)

    def ask(self, message: Request, broker: int) -> Response:
        found: list[Response] = []
        self.brokers.handle(broker, 0, message, found.append)
        (response,) = found
        return response

    def coordinate(self, message: Request) -> Any:
        response = self.ask(message, self.brokers.transaction_node)
        assert isinstance(response, EntityResponse)
        return response.entity

    def begin(self, *, again: bool = False) -> ErrorCode:
        identity = self.identity if again else (-1, -1)
        response = self.coordinate(init_producer_id("id", 4.0, *identity))
        if response.error_code is NONE:
            self.identity = response.producer_id, response.producer_epoch
        return ErrorCode(response.error_code)

    def add(self) -> ErrorCode:
        self.coordinate(add_offsets("id", *self.identity, "group"))
        added = self.coordinate(add_partitions("id", *self.identity, [OUTPUT]))
        (topic,) = added.results_by_topic_v3_and_below
        return ErrorCode(topic.results_by_partition[0].partition_error_code)

    def produce(self, value: bytes, number: int = 0) -> ErrorCode:
        batch = ResultBatch(float("inf"), 0, transactional=True)
        batch.append(1, None, value, [], _Sink(), value)
        batch.close()
        data = batch.with_sequence(BatchSequence(*self.identity, number))
        log = self.brokers.output(OUTPUT)
        assert log is not None
        ids = {"results": topic_id("results")} if self.version == 2 else None
        message = produce_request([(OUTPUT, data)], 5.0, ids, transactional_id="id")
        response: Any = self.ask(message, log.leader_id)
        return ErrorCode(partition_responses(response.entity)[OUTPUT].error)

    def commit_offset(self, offset: int) -> ErrorCode:
        entry = CommitEntry(partition=INPUT, offset=offset)
        offsets = GroupOffsets(GroupMetadata("group", -1, ""), (entry,))
        message = commit_offsets("id", *self.identity, offsets, version=self.version)
        response: Any = self.ask(message, self.brokers.coordinator)
        return ErrorCode(response.entity.topics[0].partitions[0].error_code)

    def end(self, *, committed: bool = True) -> Any:
        message = end_transaction("id", *self.identity, committed=committed, version=self.version)
        return self.coordinate(message)

    def fetched(self) -> Any:
        message = OffsetFetchRequest(group_id="group", partitions=(INPUT,), require_stable=True)
        response = self.ask(message, self.brokers.coordinator)
        assert isinstance(response, OffsetFetchResponse)
        return response.offsets[0]

    def visible(self) -> list[bytes]:
        log = self.brokers.output(OUTPUT)
        assert log is not None
        return list(log.visible())

    def wait(self, seconds: float = 0.1) -> None:
        self.clock.run_until(self.clock.now + seconds)


def _written(version: int, **options: Any) -> Producer:
    """A producer with an open transaction of one record and one offset."""
    producer = Producer(version, **options)
    assert producer.begin() is NONE
    if version < 2:
        assert producer.produce(b"x") is ErrorCode.invalid_txn_state
        assert producer.commit_offset(5) is ErrorCode.invalid_txn_state
        assert producer.add() is NONE
    assert producer.produce(b"x") is NONE
    assert producer.commit_offset(5) is NONE
    return producer


@pytest.mark.parametrize("version", [0, 1, 2])
def test_results_and_offsets_are_visible_after_the_markers_and_no_sooner(version: int) -> None:
    producer = _written(version)
    assert producer.fetched().error is ErrorCode.unstable_offset_commit
    assert producer.end().error_code is NONE
    assert (producer.visible(), producer.fetched().error) == (
        [],
        ErrorCode.unstable_offset_commit,
    )
    if version < 2:
        assert producer.add() is ErrorCode.concurrent_transactions
    else:
        producer.identity = producer.identity[0], producer.identity[1] + 1
        assert producer.produce(b"y") is ErrorCode.concurrent_transactions
    assert producer.begin(again=True) is ErrorCode.concurrent_transactions
    producer.wait()
    assert (producer.visible(), producer.fetched().offset) == ([b"x"], 5)
    assert producer.brokers.transactions.is_at_rest


@pytest.mark.parametrize("version", [1, 2])
def test_an_aborted_transaction_leaves_nothing(version: int) -> None:
    producer = _written(version)
    assert producer.end(committed=False).error_code is NONE
    producer.wait()
    assert (producer.visible(), producer.fetched().offset) == ([], -1)


@pytest.mark.parametrize("version", [1, 2])
def test_an_end_is_repeated_as_it_was_and_not_otherwise(version: int) -> None:
    producer = _written(version)
    first = producer.end()
    assert producer.end().error_code is ErrorCode.concurrent_transactions
    producer.wait()
    again = producer.end()
    assert (again.error_code, again.producer_epoch) == (NONE, first.producer_epoch)
    assert producer.end(committed=False).error_code is ErrorCode.invalid_txn_state


def test_each_transaction_of_version_2_has_its_epoch_and_an_empty_one_is_not_committed() -> None:
    producer = _written(2)
    producer.identity = producer.end().producer_id, producer.identity[1] + 1
    producer.wait()
    assert producer.end().error_code is ErrorCode.invalid_txn_state
    assert producer.end(committed=False).producer_epoch == producer.identity[1] + 1


@pytest.mark.parametrize(
    ("version", "fences_expired", "expected", "again"),
    [
        (1, True, ErrorCode.producer_fenced, ErrorCode.producer_fenced),
        (2, True, ErrorCode.producer_fenced, ErrorCode.producer_fenced),
        (2, False, ErrorCode.invalid_txn_state, NONE),
    ],
)
def test_a_transaction_that_takes_too_long_is_aborted(
    version: int, fences_expired: bool, expected: ErrorCode, again: ErrorCode
) -> None:
    producer = _written(version, fences_expired=fences_expired)
    producer.wait(9.9)
    assert producer.fetched().error is ErrorCode.unstable_offset_commit
    producer.wait(0.2)
    assert producer.fetched().offset == -1
    assert producer.end().error_code is expected
    assert producer.produce(b"y", 1) is ErrorCode.invalid_producer_epoch
    assert producer.begin(again=True) is again


@pytest.mark.parametrize("version", [1, 2])
def test_another_producer_fences_the_first_one_and_aborts_its_transaction(version: int) -> None:
    producer = _written(version)
    former = producer.identity
    assert producer.begin() is ErrorCode.concurrent_transactions
    producer.wait()
    assert producer.begin() is NONE
    producer.identity, (_, epoch) = former, producer.identity
    assert epoch > former[1]
    assert producer.end().error_code is ErrorCode.producer_fenced
    assert producer.produce(b"y", 1) is ErrorCode.invalid_producer_epoch
    assert producer.commit_offset(9) is ErrorCode.invalid_producer_epoch
    assert producer.visible() == []


@pytest.mark.parametrize("version", [1, 2])
def test_a_batch_that_is_sent_again_is_written_once_and_none_is_left_out(version: int) -> None:
    producer = _written(version)
    assert producer.produce(b"x") is NONE
    assert producer.produce(b"z", 2) is ErrorCode.out_of_order_sequence_number
    assert producer.produce(b"y", 1) is NONE
    producer.end()
    producer.wait()
    assert producer.visible() == [b"x", b"y"]


@pytest.mark.parametrize("version", [1, 2])
def test_what_was_decided_survives_a_move_of_the_coordinator(version: int) -> None:
    producer = _written(version)
    producer.end()
    former = producer.brokers.transaction_node
    producer.brokers.move_transactions(0.5)
    find = FindCoordinatorRequest(transactional_id="id")
    found = producer.ask(find, former)
    assert isinstance(found, FindCoordinatorResponse)
    assert found.node_id != former
    assert producer.end().error_code is ErrorCode.coordinator_load_in_progress
    producer.wait(0.4)
    assert producer.visible() == []
    producer.wait(0.3)
    assert (producer.visible(), producer.fetched().offset) == ([b"x"], 5)


def test_an_offset_commit_after_that_of_a_transaction_wins() -> None:
    producer = _written(2)
    producer.brokers.group.offsets[INPUT] = OffsetAndMetadata(7, "", 0)
    producer.brokers.offsets.offset_committed(INPUT)
    producer.end()
    producer.wait()
    assert producer.fetched().offset == 7


def test_a_forgotten_transactional_id_is_an_unknown_one() -> None:
    producer = _written(2)
    producer.end()
    producer.wait()
    producer.brokers.transactions.forget("id")
    assert producer.end().error_code is ErrorCode.invalid_producer_id_mapping
    assert producer.begin(again=True) is ErrorCode.invalid_producer_id_mapping
    assert producer.begin() is NONE
