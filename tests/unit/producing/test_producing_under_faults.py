"""Results are written once and in order while brokers fail, leaders move and responses are lost."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from hypothesis import given, settings
from hypothesis import strategies as st
from unit.producing.log_of_brokers import BROKERS, TOPIC, Cluster

from asyncrevoke.client.core.io.effects import Failed, FailureKind, Node, Replied
from asyncrevoke.client.errors import PublishError
from asyncrevoke.client.producing.producer_core import ProducerCore
from asyncrevoke.client.producing.requests import (
    InitProducerIdRequest,
    Outgoing,
    ProduceRequest,
    produce_response,
    producer_id_response,
)
from asyncrevoke.client.protocol.messages import EntityResponse, ErrorCode, MetadataRequest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asyncrevoke.client.model import TopicPartition

PARTITIONS = 2
_FATES = ("response", "response lost", "dropped", "unreachable")
_REJECTIONS = (
    ErrorCode.not_enough_replicas,
    ErrorCode.not_enough_replicas_after_append,
    ErrorCode.not_leader_or_follower,
    ErrorCode.kafka_storage_error,
    ErrorCode.message_too_large,
    ErrorCode.topic_authorization_failed,
)


class Run:
    """A producer and a cluster. ``queued`` are the partitions of results, by number."""

    idempotent = True

    def __init__(self) -> None:
        self.now = 0.0
        self.cluster = Cluster(PARTITIONS)
        self.core = ProducerCore(
            [Node(-1, "boot", 1)],
            request_timeout=10,
            delivery_timeout=30,
            metadata_max_age=300,
            compression=0,
            memory=1 << 14,
            idempotent=self.idempotent,
        )
        self.waiting: list[Outgoing] = []
        self.queued: dict[int, int] = {}
        self.ended: Counter[object] = Counter()
        # They have failed for certain.
        self.not_written: set[int] = set()
        # Written, and not acknowledged when the broker lost the state that finds repetitions.
        self.may_repeat: set[int] = set()

    # -- ResultSink -------------------------------------------------------------------------------

    def results_acknowledged(
        self, tokens: Sequence[object], partition: TopicPartition, offset: int, /
    ) -> None:
        self.ended.update(tokens)
        log = self.cluster.logs[partition.partition].values
        for number, token in enumerate(tokens):
            assert isinstance(token, int)
            assert token in log, "a result is acknowledged that the log does not have"
            if offset >= 0:
                assert log[offset + number] == token, "its offset is another result's"

    def results_failed(self, tokens: Sequence[object], error: Exception, /) -> None:
        assert isinstance(error, PublishError)
        self.ended.update(tokens)
        if not error.in_doubt:
            self.not_written.update(token for token in tokens if isinstance(token, int))

    # -- steps ------------------------------------------------------------------------------------

    def publish(self, partition: int, count: int) -> None:
        for _ in range(count):
            token = len(self.queued) + 1
            value = b"%d " % token + b"x" * 50
            if not self.core.append(self.now, TOPIC, partition, None, value, [], 1, self, token):
                return
            self.queued[token] = partition

    def move_leader(self, partition: int, broker: int) -> None:
        self.cluster.logs[partition].leader = broker

    def forget_producer(self, partition: int) -> None:
        self._lose_state(partition)
        self.cluster.logs[partition].forget_producer()

    def fence(self, partition: int) -> None:
        self._lose_state(partition)
        self.cluster.logs[partition].fence()

    def _lose_state(self, partition: int) -> None:
        written = self.cluster.logs[partition].values
        self.may_repeat.update(value for value in written if not self.ended[value])

    def pass_time(self, seconds: float) -> None:
        self.now += seconds

    def respond(self, which: int, state: str, rejected: dict[int, ErrorCode]) -> None:
        """A request arrives and gets a response, its response is lost, or it does not arrive."""
        if not self.waiting:
            return
        outgoing = self.waiting.pop(which % len(self.waiting))
        if state == "unreachable":
            self.reply(outgoing, Failed(0, FailureKind.UNREACHABLE, "refused"))
            return
        if state == "dropped":
            self.reply(outgoing, Failed(0, FailureKind.DISCONNECTED, "reset"))
            return
        match outgoing.message:
            case MetadataRequest():
                message: Any = self.cluster.metadata()
            case InitProducerIdRequest():
                assert self.idempotent
                message = EntityResponse(entity=producer_id_response(self.cluster.next_producer_id))
                self.cluster.next_producer_id += 1
            case ProduceRequest() as request:
                errors, offsets = self.cluster.produce(outgoing.node.node_id, request, rejected)
                message = EntityResponse(entity=produce_response(errors, offsets))
            case other:
                raise AssertionError(f"it sends {other!r}")
        if state == "response lost":
            self.reply(outgoing, Failed(0, FailureKind.TIMEOUT, "no response"))
        else:
            self.reply(outgoing, Replied(0, message))

    def reply(self, outgoing: Outgoing, reply: Replied | Failed) -> None:
        self.core.response_received(self.now, outgoing, reply)

    def send(self) -> None:
        self.core.expire(self.now)
        self.waiting += self.core.requests(self.now)

    # -- what must hold ---------------------------------------------------------------------------

    def drain(self) -> None:
        """The brokers respond again: all waits end."""
        for _ in range(200):
            self.send()
            while self.waiting:
                self.respond(0, "response", {})
                self.send()
            if not self.core.queued:
                break
            due = self.core.next_at(self.now)
            assert due < float("inf"), "results are queued, and nothing is due"
            self.now = max(due, self.now + 0.001)
        assert self.core.queued == self.core.queued_bytes == 0

    def end(self) -> None:
        """All waits end, and the logs have what they must have."""
        self.drain()
        assert self.ended == Counter(self.queued.keys()), "a result has ended twice, or never"
        for number, log in enumerate(self.cluster.logs):
            repeated = {value for value, count in Counter(log.values).items() if count > 1}
            assert repeated <= self.may_repeat, f"written twice: {repeated}"
            first = list(dict.fromkeys(log.values))
            assert first == sorted(first), "not in the order of the calls"
            assert not self.not_written.intersection(log.values), "written, and failed for certain"
            assert all(self.queued[value] == number for value in log.values)


no_rejections: dict[int, ErrorCode] = {}
partitions = st.integers(0, PARTITIONS - 1)
steps = st.one_of(
    st.tuples(st.just("publish"), partitions, st.integers(1, 2)),
    st.tuples(st.just("move_leader"), partitions, st.integers(0, BROKERS - 1)),
    st.tuples(st.sampled_from(("forget_producer", "fence")), partitions),
    st.tuples(st.just("pass_time"), st.sampled_from((0.3, 2.0, 31.0))),
    st.tuples(
        st.just("respond"),
        st.integers(0, 5),
        st.sampled_from(_FATES),
        st.one_of(
            st.just(no_rejections),
            st.dictionaries(partitions, st.sampled_from(_REJECTIONS), max_size=2),
        ),
    ),
)


@settings(max_examples=150)
@given(st.lists(steps, max_size=60))
def test_the_logs_have_each_acknowledged_result_once_in_order(
    script: list[tuple[object, ...]],
) -> None:
    run = Run()
    run.publish(0, 1)  # learns the topic
    run.send()
    run.respond(0, "response", {})
    run.publish(0, 1)  # learns a producer id
    run.send()
    run.respond(0, "response", {})
    for name, *arguments in script:
        getattr(run, str(name))(*arguments)
        run.send()
    run.end()


class RunWithoutIdempotence(Run):
    """Results that may be written twice when their response is lost, never in another order."""

    idempotent = False

    def respond(self, which: int, state: str, rejected: dict[int, ErrorCode]) -> None:
        after_append = ErrorCode.not_enough_replicas_after_append
        super().respond(which, state, rejected)
        if state == "response lost" or after_append in rejected.values():
            for log in self.cluster.logs:
                self.may_repeat.update(value for value in log.values if not self.ended[value])


@settings(max_examples=100)
@given(st.lists(steps, max_size=60))
def test_without_idempotence_only_lost_responses_repeat_results_and_the_order_holds(
    script: list[tuple[object, ...]],
) -> None:
    run = RunWithoutIdempotence()
    run.publish(0, 1)  # learns the topic
    run.send()
    run.respond(0, "response", {})
    for name, *arguments in script:
        getattr(run, str(name))(*arguments)
        run.send()
    run.end()


class RunWithKeys(Run):
    """Results with keys, for a topic that is deleted and created again."""

    def publish(self, partition: int, count: int) -> None:
        key = b"%d" % partition
        for _ in range(count):
            token = len(self.queued) + 1
            value = b"%d " % token + b"x" * 50
            if not self.core.append(self.now, TOPIC, None, key, value, [], 1, self, token):
                return
            self.queued[token] = partition

    def create_again(self, partitions: int) -> None:
        self.cluster.create_again(partitions)

    def results_failed(self, tokens: Sequence[object], error: Exception, /) -> None:
        raise AssertionError(f"{tokens} failed, although a partition takes them: {error}")

    def move_leader(self, partition: int, broker: int) -> None:
        if partition < len(self.cluster.logs):
            super().move_leader(partition, broker)

    def end(self) -> None:
        """All results end, and the present topic has each at most once."""
        self.drain()
        assert self.ended == Counter(self.queued.keys()), "a result has ended twice, or never"
        written = Counter(value for log in self.cluster.logs for value in log.values)
        repeated = {value for value, count in written.items() if count > 1}
        assert not repeated, f"written twice: {repeated}"


steps_with_creations = st.one_of(
    st.tuples(st.just("publish"), st.integers(0, 7), st.integers(1, 3)),
    st.tuples(st.just("create_again"), st.integers(1, 4)),
    st.tuples(st.just("move_leader"), st.integers(0, 3), st.integers(0, BROKERS - 1)),
    st.tuples(st.just("pass_time"), st.just(0.3)),  # less than the delivery timeout in all
    st.tuples(
        st.just("respond"), st.integers(0, 5), st.sampled_from(_FATES), st.just(no_rejections)
    ),
)


@settings(max_examples=150)
@given(st.lists(steps_with_creations, max_size=60))
def test_results_end_while_their_topic_is_created_again(script: list[tuple[object, ...]]) -> None:
    run = RunWithKeys()
    run.publish(0, 1)  # learns the topic
    run.send()
    run.respond(0, "response", {})
    for name, *arguments in script:
        getattr(run, str(name))(*arguments)
        run.send()
    run.end()
