"""Batch handlers that receive and return columns, in virtual time."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import pytest

from asyncrevoke import (
    ArrowJson,
    BatchError,
    ConfigError,
    Consumer,
    DecodedValues,
    DecodeError,
    HandlerContext,
    Record,
    Retry,
)
from asyncrevoke.client.runtime.arrow.arrow_options import COLUMNS
from asyncrevoke.testing import TestConsumer

pa: Any = pytest.importorskip("pyarrow", reason="needs the extra arrow")
pl: Any = import_module("polars") if find_spec("polars") else None

if TYPE_CHECKING:
    from collections.abc import Callable

    # Neither package has types here.
    RecordBatch: TypeAlias = Any
    DataFrame: TypeAlias = Any
else:
    RecordBatch = pa.RecordBatch
    DataFrame = None if pl is None else pl.DataFrame

Processing: TypeAlias = Literal["at_least_once", "exactly_once"]

WAIT = 0.2


def consumer(**options: Any) -> Consumer:
    return Consumer(group_id="billing", **options)


async def publish(t: TestConsumer, *values: bytes | None, **options: Any) -> None:
    for number, value in enumerate(values):
        await t.publish(
            "orders", value, key=b"k%d" % number, headers={"n": b"%d" % number}, **options
        )


@pytest.mark.parametrize("processing", ["at_least_once", "exactly_once"])
async def test_a_batch_has_all_columns_and_its_records_are_committed(
    processing: Processing,
) -> None:
    received: list[Any] = []
    c = consumer(processing=processing)

    @c.handler("orders", batch=True, max_records=3, max_wait=WAIT)
    async def store(orders: RecordBatch, context: HandlerContext) -> None:
        assert context.record.offset == orders.column("offset")[0].as_py()
        received.append(orders)

    async with TestConsumer(c, partitions=1) as t:
        await publish(t, b"a", None, b"c", b"d")
        await t.advance(1)
        assert [batch.num_rows for batch in received] == [3, 1]
        assert received[0].schema.names == list(COLUMNS)
        assert received[0].column("value").to_pylist() == [b"a", None, b"c"]
        assert received[0].column("headers").to_pylist()[1] == [{"key": "n", "value": b"1"}]
        await t.advance(10)
        assert t.committed("orders", 0) == 4


async def test_failed_rows_go_to_the_dead_letter_topic_with_their_original_bytes() -> None:
    calls: list[list[bytes]] = []
    c = consumer()

    @c.handler("orders", batch=True, max_wait=WAIT, dead_letter="dead")
    async def store(orders: RecordBatch) -> None:
        values = orders.column("value").to_pylist()
        calls.append(values)
        raise BatchError({row: ValueError("bad") for row, v in enumerate(values) if v != b"ok"})

    async with TestConsumer(c, partitions=1) as t:
        await publish(t, b"ok", b"bad", b"ok", b"worse")
        await t.advance(10)
        assert calls == [[b"ok", b"bad", b"ok", b"worse"]]
        letters = t.records("dead")
        assert [(letter.key, letter.value) for letter in letters] == [
            (b"k1", b"bad"),
            (b"k3", b"worse"),
        ]
        assert dict(letters[0].headers)["n"] == b"1"
        assert t.committed("orders", 0) == 4


async def test_an_exception_fails_all_rows_and_retry_calls_again() -> None:
    attempts: list[int] = []
    c = consumer()

    @c.handler("orders", batch=True, max_wait=WAIT, retry=Retry(attempts=3, backoff=0.1))
    async def store(orders: RecordBatch, context: HandlerContext) -> None:
        attempts.append(orders.num_rows)
        if context.attempt < 3:
            raise OSError("no space")

    async with TestConsumer(c, partitions=1) as t:
        await publish(t, b"a", b"b")
        await t.advance(10)
        assert attempts == [2, 2, 2]
        assert t.committed("orders", 0) == 2


@pytest.mark.parametrize("processing", ["at_least_once", "exactly_once"])
async def test_columns_that_are_returned_are_published(
    processing: Processing,
) -> None:
    c = consumer(processing=processing)

    @c.handler("orders", batch=True, max_wait=WAIT, publish_to="totals")
    async def total(orders: RecordBatch) -> RecordBatch:
        keys = orders.column("key")
        return pa.RecordBatch.from_arrays([keys, pa.array(["x", None])], names=["key", "value"])

    async with TestConsumer(c, partitions=1) as t:
        await publish(t, b"a", b"b")
        await t.advance(10)
        found = [(record.key, record.value) for record in t.records("totals")]
        assert found == [(b"k0", b"x"), (b"k1", None)]
        assert t.committed("orders", 0) == 2


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: pa.RecordBatch.from_arrays([pa.array([1])], names=["total"]), "no 'value'"),
        (lambda: pa.RecordBatch.from_arrays([pa.array([1])], names=["value"]), "neither binary"),
    ],
)
async def test_columns_without_a_publishable_value_fail_the_batch(
    make: Callable[[], Any], message: str
) -> None:
    c = consumer()

    @c.handler("orders", batch=True, max_wait=WAIT, publish_to="totals", dead_letter="dead")
    async def total(orders: RecordBatch) -> RecordBatch:
        return make()

    async with TestConsumer(c, partitions=1) as t:
        await publish(t, b"a")
        await t.advance(10)
        (letter,) = t.records("dead")
        assert message in str(dict(letter.headers)["asyncrevoke-error-message"])


async def test_a_timestamp_without_microseconds_fails_its_record_alone() -> None:
    received: list[bytes] = []
    c = consumer()

    @c.handler("orders", batch=True, max_wait=WAIT, on_error="skip")
    async def store(orders: RecordBatch) -> None:
        received.extend(orders.column("value").to_pylist())

    async with TestConsumer(c, partitions=1) as t:
        await publish(t, b"a")
        await publish(t, b"beyond", timestamp=2**62)
        await publish(t, b"c")
        await t.advance(10)
        assert received == [b"a", b"c"]
        assert t.committed("orders", 0) == 3


ORDERS = pa.schema([("id", pa.int64()), ("customer", pa.string())])


@pytest.mark.parametrize("from_consumer", [False, True])
@pytest.mark.parametrize("processing", ["at_least_once", "exactly_once"])
async def test_values_are_structs_and_those_that_do_not_decode_are_dead_letters(
    processing: Processing, *, from_consumer: bool
) -> None:
    received: list[tuple[int, Any]] = []
    decoder = ArrowJson(ORDERS)
    c = consumer(processing=processing, **({"decoder": decoder} if from_consumer else {}))
    options: Any = {} if from_consumer else {"decoder": decoder}

    @c.handler("orders", batch=True, max_wait=WAIT, dead_letter="dead", **options)
    async def store(orders: RecordBatch) -> None:
        columns = (orders.column(name).to_pylist() for name in ("offset", "value"))
        received.extend(zip(*columns, strict=True))

    async with TestConsumer(c, partitions=1) as t:
        await publish(t, b'{"id": 1}', b"[", None, b'{"id": 2, "customer": "c7"}', b'{"id": "x"}')
        await t.advance(10)
        assert received == [
            (0, {"id": 1, "customer": None}),
            (2, None),
            (3, {"id": 2, "customer": "c7"}),
        ]
        letters = t.records("dead")
        assert [(letter.key, letter.value) for letter in letters] == [
            (b"k1", b"["),
            (b"k4", b'{"id": "x"}'),
        ]
        error = dict(letters[1].headers)["asyncrevoke-error-type"] or b""
        assert error.endswith(b".DecodeError")
        assert b"Expected `int | null`" in (
            dict(letters[1].headers)["asyncrevoke-error-message"] or b""
        )
        assert t.committed("orders", 0) == 5


async def test_rows_before_a_value_that_stops_the_consumer_are_handled() -> None:
    received: list[int] = []
    c = consumer(decoder=ArrowJson(ORDERS))

    @c.handler("orders", batch=True, max_wait=WAIT)
    async def store(orders: RecordBatch) -> None:
        received.extend(value["id"] for value in orders.column("value").to_pylist())

    with pytest.raises(DecodeError, match=r"orders-0.*offset 2"):
        async with TestConsumer(c, partitions=1) as t:
            await publish(t, b'{"id": 1}', b'{"id": 2}', b"no", b'{"id": 4}')
            await t.advance(10)
    assert received == [1, 2]


async def test_retry_decodes_again_and_an_error_of_the_decoder_fails_the_batch() -> None:
    received: list[int] = []
    c = consumer()

    class Flaky(ArrowJson):
        calls = 0

        def decode(self, values: Any) -> DecodedValues:
            self.calls += 1
            if self.calls == 1:
                raise ConnectionError("the registry does not respond")
            return super().decode(values)

    retry = Retry(attempts=3, backoff=0.1)

    @c.handler("orders", batch=True, max_wait=WAIT, decoder=Flaky(ORDERS), retry=retry)
    async def store(orders: RecordBatch) -> None:
        received.extend(value["id"] for value in orders.column("value").to_pylist())

    async with TestConsumer(c, partitions=1) as t:
        await publish(t, b'{"id": 1}', b'{"id": 2}')
        await t.advance(10)
        assert received == [1, 2]
        assert t.committed("orders", 0) == 2


async def test_records_may_be_received_beside_the_columns() -> None:
    received: list[tuple[int, list[int]]] = []
    c = consumer()

    @c.handler("orders", batch=True, max_wait=WAIT)
    async def store(orders: RecordBatch, records: list[Record]) -> None:
        received.append((orders.num_rows, [record.offset for record in records]))

    async with TestConsumer(c, partitions=1) as t:
        await publish(t, b"a", b"b")
        await t.advance(10)
    assert received == [(2, [0, 1])]


@pytest.mark.skipif(pl is None, reason="needs polars")
async def test_a_handler_may_receive_and_return_data_frames_of_polars() -> None:
    c = consumer()

    @c.handler("orders", batch=True, max_wait=WAIT, publish_to="totals")
    async def total(orders: DataFrame) -> DataFrame:
        return orders.select("key", pl.col("value").bin.size().cast(pl.String))

    async with TestConsumer(c, partitions=1) as t:
        await publish(t, b"a", b"bcd")
        await t.advance(10)
        found = [(record.key, record.value) for record in t.records("totals")]
        assert found == [(b"k0", b"1"), (b"k1", b"3")]


def test_columns_need_batches_and_their_package(monkeypatch: pytest.MonkeyPatch) -> None:
    async def store(orders: RecordBatch) -> None: ...

    with pytest.raises(ConfigError, match="batch=True"):
        consumer().handler("orders")(store)
    with pytest.raises(ConfigError, match="leave out decoder="):
        consumer().handler("orders", batch=True, decoder=lambda record: record.value)(store)

    def found(package: str) -> object | None:
        return None if package == "pyarrow" else object()

    monkeypatch.setattr("asyncrevoke.client.runtime.arrow.arrow_options.find_spec", found)
    with pytest.raises(ConfigError, match=r'store need pyarrow: pip install "asyncrevoke\[arrow\]'):
        consumer().handler("orders", batch=True)(store)
