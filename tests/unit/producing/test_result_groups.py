"""Results that are queued together are sent as if each had been queued by itself."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from unit.handlers.results.scripted_results_broker import ScriptedResultsBroker, publish
from unit.producing.test_producer_core import Setting, Sink, batches

from asyncrevoke.client.errors import ConsumerClosedError
from asyncrevoke.client.model import Record, TopicPartition
from asyncrevoke.client.producing import producer_core
from asyncrevoke.client.producing.delivery import Delivery
from asyncrevoke.client.producing.queueing.result_group import ResultGroup
from asyncrevoke.client.protocol.messages import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asyncrevoke.client.producing.record_producer import RecordProducer
    from asyncrevoke.client.producing.requests import Outgoing

E = ErrorCode


def add(group: ResultGroup, key: bytes | None, value: bytes | None) -> None:
    """Add a result of a record with this key and value."""
    group.records.append(Record("orders", 0, 0, 0, 0, key, value))
    group.values.append(value)


def group_of(sink: Sink, *results: tuple[bytes | None, bytes | None]) -> ResultGroup:
    """Keys and values."""
    group = ResultGroup("t", sink)
    for key, value in results:
        add(group, key, value)
    return group


def values_of(tokens: Sequence[object]) -> list[bytes | None]:
    """The values of the records that are the tokens of results."""
    return [token.value for token in tokens if isinstance(token, Record)]


def append(setting: Setting, *results: tuple[bytes | None, bytes | None]) -> None:
    setting.core.append_group(setting.now, group_of(setting.sink, *results), 1_700_000_000_000)


def sent(setting: Setting) -> list[Outgoing]:
    return [request for request in setting.core.requests(setting.now) if request.queues]


def written(requests: Sequence[Outgoing]) -> dict[int, list[tuple[bytes | None, bytes | None]]]:
    return {
        tp.partition: [(record.key, record.value) for record in batch]
        for outgoing in requests
        for tp, batch in batches(outgoing).items()
    }


def test_a_group_is_written_as_single_results_are() -> None:
    results = [(b"key-%d" % (n % 7), b"%d" % n) for n in range(50)]
    grouped, single = Setting(), Setting()
    append(grouped, *results)
    for key, value in results:
        assert single.append(value, None, key)
    assert grouped.core.queued == 50
    assert grouped.core.queued_bytes == single.core.queued_bytes
    requests: list[list[Outgoing]] = []
    for setting in (grouped, single):
        setting.start()
        requests.append(sent(setting))
    assert written(requests[0]) == written(requests[1])
    assert sum(map(len, written(requests[0]).values())) == 50
    for outgoing in requests[0]:
        grouped.respond(outgoing, *[E.none] * len(outgoing.queues))
    assert grouped.core.queued_bytes == grouped.core.queued == 0
    assert set(values_of(grouped.sink.acknowledged)) == {value for _, value in results}
    assert len(grouped.sink.acknowledged) == 50


def test_results_after_a_full_batch_begin_another_one_in_order() -> None:
    setting = Setting()
    values = [b"%d" % n + b"x" * 100_000 for n in range(5)] + [b"small"]
    append(setting, *((b"k", value) for value in values))
    setting.start()
    seen: list[bytes | None] = []
    while requests := sent(setting):
        (outgoing,) = requests
        seen += [value for _, value in next(iter(written(requests).values()))]
        setting.respond(outgoing, E.none)
    assert seen == values
    assert values_of(setting.sink.acknowledged) == values
    assert setting.core.queued_bytes == 0


def test_groups_and_single_results_share_a_batch_and_each_sink_learns_its_own_offsets() -> None:
    setting, other = Setting(partitions=1), Sink()
    append(setting, (b"a", b"0"), (b"b", b"1"))
    setting.core.append_group(0.0, group_of(other, (b"a", b"2")), 0)
    assert setting.append(b"3")
    append(setting, (b"a", b"4"))
    setting.start()
    (outgoing,) = sent(setting)
    setting.respond(outgoing, E.none)
    tp = TopicPartition("t", 0)
    assert setting.sink.offsets == [(tp, 0), (tp, 1), (tp, 3), (tp, 4)]
    assert other.offsets == [(tp, 2)]


def test_results_without_a_key_move_on_when_their_batch_is_full() -> None:
    setting = Setting(partitions=2)
    values = [b"%d" % n + b"x" * 100_000 for n in range(6)]
    append(setting, *((None, value) for value in values))
    setting.start()
    found = written(sent(setting))
    assert [value[:1] for _, value in found[0] if value] == [b"0", b"1"]
    assert len(found[1]) == 2


def test_a_result_that_no_broker_takes_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_core, "LARGEST_RECORD", 300_000)
    setting = Setting(partitions=1)
    append(setting, (b"k", b"1"), (b"k" * 300_001, b"2"), (b"k", b"3"))
    assert values_of([token for token, _ in setting.sink.failed]) == [b"2"]
    setting.start()
    assert written(sent(setting)) == {0: [(b"k", b"1")]}
    assert setting.core.queued == 2


def begin_group(producer: RecordProducer, sink: Sink) -> ResultGroup:
    """A group with one result, which is not queued yet."""
    group = ResultGroup("t", sink)
    assert producer.begin_group(group)
    add(group, None, b"1")
    return group


async def test_a_result_that_is_awaited_is_sent_after_the_group_before_it() -> None:
    broker, sink = ScriptedResultsBroker(), Sink()
    producer = broker.open_producer()
    try:
        await publish(producer, "t", b"0")
        begin_group(producer, sink)
        assert producer.queued == 1
        await publish(producer, "t", b"2")
    finally:
        await producer.aclose()
    assert [value for _, _, value in broker.written] == [b"0", b"1", b"2"]
    assert values_of(sink.acknowledged) == [b"1"]


async def test_a_group_is_not_begun_while_its_topic_is_unknown_or_memory_is_full() -> None:
    broker = ScriptedResultsBroker()
    producer = broker.open_producer()
    producer._core.memory = 100
    group = ResultGroup("t", Sink())
    try:
        assert not producer.begin_group(group)
        await publish(producer, "t", b"")
        broker.responding.clear()
        delivery = Delivery()
        await producer.queue("t", None, None, b"x" * 100, [], None, delivery)
        assert not producer.begin_group(group)
        broker.responding.set()
        await delivery.wait()
        assert producer.begin_group(group)
    finally:
        await producer.aclose()


async def test_a_group_fails_when_its_producer_is_stopped() -> None:
    broker, sink = ScriptedResultsBroker(), Sink()
    producer = broker.open_producer()
    await publish(producer, "t", b"0")
    group = begin_group(producer, sink)
    await producer.aclose()
    assert values_of([token for token, _ in sink.failed]) == [b"1"]
    assert producer.queued == 0
    with pytest.raises(ConsumerClosedError):
        producer.begin_group(group)


async def test_flushing_waits_for_groups() -> None:
    broker, sink = ScriptedResultsBroker(), Sink()
    producer = broker.open_producer()
    try:
        await publish(producer, "t", b"0")
        begin_group(producer, sink)
        async with asyncio.timeout(10):
            await producer.flush()
        assert values_of(sink.acknowledged) == [b"1"]
    finally:
        await producer.aclose()
