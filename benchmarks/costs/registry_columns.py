"""What it costs to make columns of Avro and Protobuf values with the framing of a schema registry:
``ArrowRegistry`` with a library that decodes in bulk, beside dicts.

    python -m benchmarks.costs.registry_columns [--values N] [--turns N]

Needs ``pip install ptars pyruhvro fastavro``. Without a broker, by CPU time, all in turn: the least
of many times.
"""

from __future__ import annotations

import argparse
import io
import json
import struct
import time
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias

from asyncrevoke import ArrowRegistry
from asyncrevoke.client.columns.arrow import pa, pc
from benchmarks.report.surroundings import surroundings, table

if TYPE_CHECKING:
    from collections.abc import Callable

# pyarrow and these libraries have no type annotations.
Untyped: TypeAlias = Any

fastavro: Untyped = import_module("fastavro")
ptars: Untyped = import_module("ptars")
pyruhvro: Untyped = import_module("pyruhvro")
descriptors: Untyped = import_module("google.protobuf.descriptor_pb2")
pools: Untyped = import_module("google.protobuf.descriptor_pool")
messages: Untyped = import_module("google.protobuf.message_factory")

SCHEMA = pa.schema({"id": pa.int64(), "customer": pa.string(), "amount": pa.float64()})
AVRO = {"id": "long", "customer": "string", "amount": "double"}
FRAMING = b"\0" + struct.pack(">i", 7)


def orders(count: int) -> list[dict[str, Any]]:
    """Of three fields."""
    return [{"id": n, "customer": f"c{n % 1000}", "amount": n / 100} for n in range(count)]


def avro(count: int) -> tuple[Untyped, Callable[[], Untyped], Callable[[], Untyped]]:
    """Values, and what decodes them in bulk and as dicts."""
    fields = [{"name": name, "type": kind} for name, kind in AVRO.items()]
    writer = json.dumps({"type": "record", "name": "Order", "fields": fields})
    parsed = fastavro.parse_schema(json.loads(writer))

    def encoded(order: dict[str, Any]) -> bytes:
        written = io.BytesIO()
        fastavro.schemaless_writer(written, parsed, order)
        return FRAMING + written.getvalue()

    def decode(_: int, payloads: Untyped) -> Untyped:
        return pyruhvro.deserialize_array(payloads.to_pylist(), writer)

    def read(value: bytes) -> dict[str, Any]:
        found: dict[str, Any] = fastavro.schemaless_reader(io.BytesIO(value[5:]), parsed, None)
        return found

    values = pa.array(list(map(encoded, orders(count))), pa.binary())
    decoder = ArrowRegistry(SCHEMA, decode)
    return (
        values,
        lambda: pa.RecordBatch.from_struct_array(decoder.decode(values).columns),
        lambda: pa.Table.from_pylist(list(map(read, values.to_pylist())), SCHEMA),
    )


def order_class() -> Untyped:
    """The class that protoc generates of a message with the three fields."""
    file = descriptors.FileDescriptorProto(name="order.proto", syntax="proto3")
    message = file.message_type.add(name="Order")
    kinds = descriptors.FieldDescriptorProto
    for number, (name, kind) in enumerate(
        (("id", kinds.TYPE_INT64), ("customer", kinds.TYPE_STRING), ("amount", kinds.TYPE_DOUBLE))
    ):
        message.field.add(name=name, number=number + 1, type=kind, label=kinds.LABEL_OPTIONAL)
    pool = pools.DescriptorPool()
    pool.Add(file)
    return messages.GetMessageClass(pool.FindMessageTypeByName("Order"))


def protobuf(count: int) -> tuple[Untyped, Callable[[], Untyped], Callable[[], Untyped]]:
    """Values, and what decodes them in bulk and as dicts."""
    kind = order_class()
    handler = ptars.HandlerPool([kind.DESCRIPTOR.file]).get_for_message(kind.DESCRIPTOR)

    def decode(_: int, payloads: Untyped) -> Untyped:
        return handler.array_to_record_batch(pc.binary_slice(payloads, 1, 2**31 - 1))

    def read(value: bytes) -> dict[str, Any]:
        found = kind.FromString(value[6:])
        return {"id": found.id, "customer": found.customer, "amount": found.amount}

    values = pa.array(
        [FRAMING + b"\0" + kind(**order).SerializeToString() for order in orders(count)],
        pa.binary(),
    )
    decoder = ArrowRegistry(SCHEMA, decode)
    return (
        values,
        lambda: pa.RecordBatch.from_struct_array(decoder.decode(values).columns),
        lambda: pa.Table.from_pylist(list(map(read, values.to_pylist())), SCHEMA),
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--values", type=int, default=10_000)
    parser.add_argument("--turns", type=int, default=9)
    options = parser.parse_args()
    found = surroundings("none")
    print(f"Python {found['Python']}, pyarrow {pa.__version__}; {found['machine']}")
    rows: list[list[str]] = []
    for name, prepared in {
        "Avro: pyruhvro, fastavro": avro(options.values),
        "Protobuf: ptars, protobuf": protobuf(options.values),
    }.items():
        _, *work = prepared
        in_bulk, by_dicts = (each().to_pylist() for each in work)
        assert in_bulk == by_dicts == orders(options.values)
        least = [float("inf")] * len(work)
        for _ in range(options.turns):
            for place, each in enumerate(work):
                began = time.process_time_ns()
                each()
                least[place] = min(least[place], time.process_time_ns() - began)
        costs = [f"{candidate / options.values:,.0f}" for candidate in least]
        rows.append([name, costs[0], f"{costs[1]} ({least[1] / least[0]:.1f})"])
    header = ["ns of CPU a value (times ArrowRegistry)", "ArrowRegistry", "dicts, from_pylist"]
    print(table(header, rows))


if __name__ == "__main__":
    main()
