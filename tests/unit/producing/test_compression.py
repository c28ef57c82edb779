"""Large batches are compressed in a thread, records that are too large before they fail."""

from __future__ import annotations

import asyncio
import threading

import pytest
from unit.handlers.results.scripted_results_broker import ScriptedResultsBroker, publish
from unit.producing.test_producer_core import TP, E, Setting, batches, sequence, values

from asyncrevoke.client.config import ConsumerConfig
from asyncrevoke.client.core.io.effects import Node
from asyncrevoke.client.errors import ConsumerClosedError
from asyncrevoke.client.producing.delivery import Delivery
from asyncrevoke.client.producing.record_batch import ResultBatch
from asyncrevoke.client.producing.record_producer import RecordProducer
from asyncrevoke.client.protocol.messages import ErrorCode  # noqa: TC001 - a parameter's annotation

_NONE, _GZIP, _ZSTD = 0, 1, 4
_CODECS = ("gzip", "snappy", "lz4", "zstd")


def _compressing_threads() -> list[str]:
    names = [each.name for each in threading.enumerate()]
    return [name for name in names if name.startswith("asyncrevoke compress")]


def producer_of(broker: ScriptedResultsBroker, compression: str) -> RecordProducer:
    config = ConsumerConfig(request_timeout=5, compression=compression)  # type: ignore[arg-type]
    return RecordProducer(config, broker, [Node(-1, "a", 1)], lambda: 1000.0)


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> list[tuple[bool, int]]:
    """For each compression: whether it was in the event loop's thread, and of how many bytes."""
    main, compress = threading.get_ident(), ResultBatch.compress
    seen: list[tuple[bool, int]] = []

    def watched(batch: ResultBatch) -> None:
        if batch._written is None:
            seen.append((threading.get_ident() == main, batch.size))
        compress(batch)

    monkeypatch.setattr(ResultBatch, "compress", watched)
    return seen


@pytest.mark.parametrize("codec", _CODECS)
async def test_the_event_loop_compresses_small_batches_only(
    codec: str, threads: list[tuple[bool, int]]
) -> None:
    broker = ScriptedResultsBroker()
    producer = producer_of(broker, codec)
    try:
        async with asyncio.timeout(10):
            await publish(producer, "orders", b"small")
            delivery = Delivery()
            for number in range(600):
                value = b"%d " % number * 200
                await producer.queue("orders", None, None, value, [], None, delivery)
            await delivery.wait()
    finally:
        await producer.aclose()
    values = [value or b"" for _, _, value in broker.written]
    assert values == [b"small", *(b"%d " % number * 200 for number in range(600))]
    assert threads[0] == (True, threads[0][1]), "the small one is sent at once"
    large = threads[1:]
    assert len(large) > 1
    assert all(in_loop == (size <= 16 * 1024) for in_loop, size in large)
    assert any(not in_loop for in_loop, _ in large)


async def test_closing_while_a_batch_is_compressed_ends_the_thread() -> None:
    broker = ScriptedResultsBroker()
    producer = producer_of(broker, "gzip")
    await publish(producer, "orders", b"1")
    publishing = asyncio.ensure_future(publish(producer, "orders", b"x" * 200_000))
    while producer._compressor is None:  # noqa: ASYNC110 - it is begun in a later iteration
        await asyncio.sleep(0)
    await producer.aclose()
    with pytest.raises(ConsumerClosedError):
        await publishing
    async with asyncio.timeout(5):
        while _compressing_threads():  # noqa: ASYNC110 - a thread sets no event when it ends
            await asyncio.sleep(0.01)


async def test_an_error_of_the_codec_ends_the_producer(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_batch: ResultBatch) -> None:
        raise RuntimeError("no codec")

    broker = ScriptedResultsBroker()
    producer = producer_of(broker, "gzip")
    monkeypatch.setattr(ResultBatch, "compress", broken)
    try:
        async with asyncio.timeout(5):
            with pytest.raises(RuntimeError, match="no codec"):
                await publish(producer, "orders", b"x" * 200_000)
    finally:
        await producer.aclose()


# -- after a rejection ---------------------------------------------------------------------------


@pytest.mark.parametrize("error", [E.message_too_large, E.record_list_too_large])
@pytest.mark.parametrize("compression", [0, 1, 2, 3])
def test_a_record_that_is_too_large_is_compressed_before_it_fails(
    compression: int, error: ErrorCode
) -> None:
    setting = Setting(compression=compression)
    large = b"large " * 1000
    for value in (b"0", large, b"2"):
        assert setting.append(value)
    setting.start()
    while setting.core.queued:
        outgoing = setting.sent()
        (batch,) = batches(outgoing).values()
        accepted = large not in values(outgoing) or batch.compression_type == _ZSTD
        setting.respond(outgoing, E.none if accepted else error)
    assert setting.sink.acknowledged == [b"0", large, b"2"], "in their order"
    assert not setting.sink.failed
    assert setting.core.queued_bytes == 0


def test_records_larger_than_one_that_was_too_large_are_compressed_before_they_are_sent() -> None:
    setting = Setting()
    large, larger, small = b"a" * 1000, b"b" * 2000, b"c" * 900
    sent: list[tuple[int, int]] = []
    for value in (large, larger, small):
        assert setting.append(value)
        if not sent:
            setting.start()
        while setting.core.queued:
            outgoing = setting.sent()
            (batch,) = batches(outgoing).values()
            sent.append((len(value), batch.compression_type))
            too_large = len(value) >= 1000 and batch.compression_type != _ZSTD
            setting.respond(outgoing, E.message_too_large if too_large else E.none)
    assert sent == [(1000, 0), (1000, _ZSTD), (2000, _ZSTD), (900, 0)]


def test_a_record_that_is_too_large_and_compressed_is_not_sent_again() -> None:
    setting = Setting(compression=_ZSTD)
    assert setting.append(b"large")
    setting.start()
    setting.respond(setting.sent(), E.message_too_large)
    assert [token for token, _ in setting.sink.failed] == [b"large"]
    assert not setting.core.queued


def test_only_a_record_that_is_too_large_is_compressed_after_a_rejection() -> None:
    setting = Setting()
    assert setting.append(b"no key")
    setting.start()
    setting.respond(setting.sent(), E.invalid_record)
    assert [token for token, _ in setting.sink.failed] == [b"no key"]


def test_a_record_in_doubt_that_is_compressed_begins_a_new_epoch() -> None:
    setting = Setting()
    assert setting.append(b"large")
    setting.start()
    outgoing = setting.sent()
    setting.respond(outgoing, E.request_timed_out)
    setting.now += 10
    setting.respond(setting.sent(), E.message_too_large)
    compressed = setting.sent()
    assert batches(compressed)[TP].compression_type == _ZSTD
    assert sequence(compressed) == (77, 1, 0)
    setting.respond(compressed, E.none)
    assert setting.sink.acknowledged == [b"large"]


@pytest.mark.parametrize(
    "error", [E.unsupported_compression_type, E.unsupported_for_message_format]
)
def test_a_refused_compression_fails_records_with_the_option(error: ErrorCode) -> None:
    setting = Setting(compression=_ZSTD)
    assert setting.append(b"1")
    setting.start()
    setting.respond(setting.sent(), error)
    ((_, text),) = setting.sink.failed
    assert 'Consumer(compression="gzip")' in text


def test_a_record_that_is_too_large_is_compressed_with_gzip_where_zstd_is_refused() -> None:
    setting = Setting(idempotent=False)
    large, larger = b"large " * 1000, b"larger " * 1000
    sent: list[int] = []
    for value in (large, larger):
        assert setting.append(value)
        while setting.core.queued:
            outgoing = setting.sent()
            compression = batches(outgoing)[TP].compression_type
            sent.append(compression)
            refusals = {_NONE: E.message_too_large, _ZSTD: E.unsupported_compression_type}
            setting.respond(outgoing, refusals.get(compression, E.none))
    assert setting.sink.acknowledged == [large, larger]
    assert sent == [_NONE, _ZSTD, _GZIP, _GZIP]


def test_a_record_that_is_too_large_with_gzip_fails_because_of_its_size() -> None:
    setting = Setting(idempotent=False, compression=_GZIP)
    assert setting.append(b"large " * 1000)
    setting.respond(setting.sent(), E.message_too_large)
    setting.respond(setting.sent(), E.unsupported_compression_type)
    setting.respond(setting.sent(), E.message_too_large)
    ((_, text),) = setting.sink.failed
    assert "max.message.bytes" in text
