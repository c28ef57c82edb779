"""What it costs to make columns of JSON values: ``ArrowJson`` beside dicts, and beside pyarrow's
reader of JSON, which gets all values joined by line breaks.

    python -m benchmarks.costs.json_columns [--values N] [--turns N]

Without a broker, by CPU time, all in turn: the least of many times, which moves little on a busy
machine.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from asyncrevoke import ArrowJson
from asyncrevoke.client.columns.arrow import pa
from benchmarks.report.surroundings import surroundings, table

if TYPE_CHECKING:
    from collections.abc import Callable

# pyarrow has no type annotations.
Values: TypeAlias = Any
Schema: TypeAlias = Any
Columns: TypeAlias = Any

arrow_reader: Any = import_module("pyarrow.json")

EIGHT = pa.schema(
    {
        "id": pa.int64(),
        "customer": pa.string(),
        "amount": pa.float64(),
        "currency": pa.string(),
        "paid": pa.bool_(),
        "items": pa.int32(),
        "at": pa.timestamp("ms"),
        "note": pa.string(),
    }
)
MORE = pa.schema({f"more_{n}": pa.string() if n % 2 else pa.int64() for n in range(40)})
LINES = pa.schema(
    {
        "id": pa.int64(),
        "lines": pa.list_(pa.struct({"sku": pa.string(), "n": pa.int32(), "price": pa.float64()})),
        "to": pa.struct({"city": pa.string(), "zip": pa.string()}),
    }
)
TEXT = pa.schema({"id": pa.int64(), "body": pa.string()})


class Checked(msgspec.Struct, gc=False):
    """An object of which no field is read."""


def word(chance: random.Random, length: int) -> str:
    """Letters."""
    return "".join(chance.choices("abcdefghijklmnop", k=length))


def order(chance: random.Random, number: int) -> dict[str, Any]:
    """Of eight fields."""
    return {
        "id": number,
        "customer": f"c{chance.randrange(1000)}",
        "amount": chance.randrange(10_000) / 100,
        "currency": "EUR",
        "paid": chance.random() < 0.5,
        "items": chance.randrange(9),
        "at": "2024-01-02T03:04:05.123",
        "note": None if chance.random() < 0.5 else "x" * 8,
    }


def wide_order(chance: random.Random, number: int) -> dict[str, Any]:
    """Of 48 fields."""
    more = {f.name: word(chance, 8) if f.type == pa.string() else number for f in MORE}
    return order(chance, number) | more


def order_of_lines(chance: random.Random, number: int) -> dict[str, Any]:
    """With a list of structs, and a struct."""
    lines = [{"sku": word(chance, 6), "n": n, "price": n / 4} for n in range(3)]
    return {"id": number, "lines": lines, "to": {"city": word(chance, 8), "zip": word(chance, 5)}}


def letter(chance: random.Random, number: int) -> dict[str, Any]:
    """Of one long text."""
    return {"id": number, "body": word(chance, 900)}


KINDS: dict[str, tuple[Callable[[random.Random, int], dict[str, Any]], Any]] = {
    "8 fields": (order, EIGHT),
    "8 of 48 fields": (wide_order, EIGHT),
    "48 fields": (wide_order, pa.schema([*EIGHT, *MORE])),
    "list of structs": (order_of_lines, LINES),
    "long text": (letter, TEXT),
}
CANDIDATES = (
    "ArrowJson",
    "msgspec, from_pylist",
    "json.loads, from_pylist",
    "pyarrow.json",
    "checked",
)


def candidates(values: Values, schema: Schema) -> list[Callable[[], Columns]]:
    """In the order of ``CANDIDATES``. The last checks that each value is one object, and pyarrow
    reads them. pyarrow makes no timestamps of strings in dicts: these get
    a column of strings, and cast it."""
    decode, decoder = msgspec.json.Decoder().decode, ArrowJson(schema)
    texts = pa.schema([f.with_type(pa.string()) if f.name == "at" else f for f in schema])
    options: dict[str, Any] = {
        "parse_options": arrow_reader.ParseOptions(
            explicit_schema=schema, unexpected_field_behavior="ignore"
        ),
        "read_options": arrow_reader.ReadOptions(use_threads=False, block_size=2**30),
    }

    def by_dicts(read: Callable[[bytes], Any]) -> Columns:
        return pa.Table.from_pylist(list(map(read, values.to_pylist())), texts).cast(schema)

    def by_pyarrow() -> Columns:
        joined = b"\n".join(values.to_pylist())
        return arrow_reader.read_json(pa.BufferReader(joined), **options)

    check = msgspec.json.Decoder(Checked).decode

    def by_pyarrow_if_checked() -> Columns:
        values.cast(pa.string())
        assert len(list(map(check, values.to_pylist()))) == len(values)
        return by_pyarrow()

    return [
        lambda: pa.RecordBatch.from_struct_array(decoder.decode(values).columns),
        lambda: by_dicts(decode),
        lambda: by_dicts(json.loads),
        by_pyarrow,
        by_pyarrow_if_checked,
    ]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--values", type=int, default=10_000)
    parser.add_argument("--turns", type=int, default=9)
    options = parser.parse_args()
    found = surroundings("none")
    print(f"Python {found['Python']}, pyarrow {pa.__version__}, msgspec {msgspec.__version__}")
    print(f"{found['machine']}; {options.values} values at once")
    rows: list[list[str]] = []
    for name, (make, schema) in KINDS.items():
        chance = random.Random(1)
        given = [json.dumps(make(chance, number)).encode() for number in range(options.values)]
        work = candidates(pa.array(given, pa.binary()), schema)
        expected, *others = (each().to_pylist() for each in work)
        assert all(other == expected for other in others)
        least = [float("inf")] * len(work)
        for _ in range(options.turns):
            for place, each in enumerate(work):
                began = time.process_time_ns()
                each()
                least[place] = min(least[place], time.process_time_ns() - began)
        costs = [f"{candidate / options.values:,.0f}" for candidate in least]
        ratios = [f"{candidate / least[0]:.2f}" for candidate in least[1:]]
        size = sum(map(len, given)) // len(given)
        rows.append(
            [f"{name}, {size} bytes", costs[0]]
            + [f"{cost} ({ratio})" for cost, ratio in zip(costs[1:], ratios, strict=True)]
        )
    print(table(["ns of CPU a value (times ArrowJson)", *CANDIDATES], rows))


if __name__ == "__main__":
    main()
