"""Columns of values with the framing of a schema registry."""

from __future__ import annotations

import struct
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("numpy", reason="needs the extra arrow")
pytest.importorskip("pyarrow", reason="needs the extra arrow")

from asyncrevoke import ArrowRegistry, Router
from asyncrevoke.client.columns.arrow import pa
from asyncrevoke.client.errors import ConfigError

SCHEMA = pa.schema([("id", pa.int8()), ("note", pa.string())])
NO_ID = "the value has no schema id: it does not begin with a zero byte and the four of an id"


def framed(payload: bytes, schema_id: int = 7) -> bytes:
    return b"\0" + struct.pack(">i", schema_id) + payload


def binary(*values: bytes | None) -> Any:
    return pa.array(values, pa.binary())


class Numbers:
    """A function that decodes texts of numbers, and remembers how many it got."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, int]] = []

    def decode(self, schema_id: int, payloads: Any) -> Any:
        assert payloads.type == pa.binary()
        self.calls.append((schema_id, len(payloads)))
        numbers = [int(payload) for payload in payloads.to_pylist()]
        return pa.RecordBatch.from_pydict(
            {"note": [f"schema {schema_id}"] * len(numbers), "id": numbers, "more": numbers}
        )


def test_rows_stay_beside_their_values_with_several_schemas_tombstones_and_failures() -> None:
    values = binary(
        framed(b"1"), None, framed(b"2", 8), framed(b"x"), b"", framed(b"3"), b"\1" + b"0" * 9
    )
    numbers = Numbers()
    columns, failures = ArrowRegistry(SCHEMA, numbers.decode).decode(values)
    assert columns.type == pa.struct(list(SCHEMA))
    assert columns.to_pylist() == [
        {"id": 1, "note": "schema 7"},
        None,
        {"id": 2, "note": "schema 8"},
        None,
        None,
        {"id": 3, "note": "schema 7"},
        None,
    ]
    assert list(failures) == [3, 4, 6]
    assert failures[3].startswith(
        "the value does not decode with Numbers.decode: ValueError at test_arrow_registry.py:"
    )
    assert failures[4] == failures[6] == NO_ID


@given(
    st.lists(
        st.none()
        | st.binary(max_size=7)
        | st.builds(framed, st.binary(max_size=2), st.integers(-1, 3)),
        max_size=30,
    ),
    st.sampled_from([pa.binary(), pa.large_binary()]),
)
@settings(max_examples=150, deadline=None)
def test_row_n_is_value_n(values: list[bytes | None], kind: Any) -> None:
    expected: list[Any] = []
    failing: list[int] = []
    for row, value in enumerate(values):
        expected.append(None)
        if value is None:
            continue
        try:
            assert value[:2] < b"\0\x80"
            (schema_id,) = struct.unpack(">i", value[1:5])
            number = int(value[5:])
            assert -128 <= number <= 127
            expected[row] = {"id": number, "note": f"schema {schema_id}"}
        except (AssertionError, struct.error, ValueError):
            failing.append(row)
    array = pa.array([b"not in the slice", *values], kind).slice(1)
    columns, failures = ArrowRegistry(SCHEMA, Numbers().decode).decode(array)
    columns.validate(full=True)
    assert (columns.to_pylist(), list(failures)) == (expected, failing)


def test_one_value_of_many_that_fails_takes_few_calls() -> None:
    values = [framed(b"1")] * 10_000
    values[4321] = framed(b"never")
    numbers = Numbers()
    columns, failures = ArrowRegistry(SCHEMA, numbers.decode).decode(binary(*values))
    assert list(failures) == [4321]
    assert columns.null_count == 1
    assert len(numbers.calls) < 30


def test_as_many_schema_ids_as_values_are_grouped_in_one_pass() -> None:
    values = binary(*(framed(b"1", schema_id) for schema_id in range(4_000)))
    numbers = Numbers()
    columns, failures = ArrowRegistry(SCHEMA, numbers.decode).decode(values)
    assert (columns.null_count, failures) == (0, {})
    assert numbers.calls == [(schema_id, 1) for schema_id in range(4_000)]
    assert columns[3_999].as_py() == {"id": 1, "note": "schema 3999"}


def test_columns_are_cast_and_missing_ones_are_null_unless_they_may_not_be() -> None:
    def decode(_: int, payloads: Any) -> Any:
        return pa.RecordBatch.from_pydict({"id": [len(each) for each in payloads.to_pylist()]})

    long = binary(framed(b"x"), framed(b"x" * 200))
    columns, failures = ArrowRegistry(SCHEMA, decode).decode(long)
    assert columns.to_pylist() == [{"id": 1, "note": None}, None]
    assert failures[1].endswith("decode: Expected `int8` at $.id")
    required = pa.schema([("id", pa.int64()), pa.field("note", pa.string(), nullable=False)])
    _, failures = ArrowRegistry(required, decode).decode(long)
    assert [reason.rpartition(": ")[2] for reason in failures.values()] == [
        "Expected `string`, got `null` at $.note"
    ] * 2


def test_another_number_of_rows_than_values_is_a_failure_of_the_values() -> None:
    def decode(_: int, payloads: Any) -> Any:
        kept = [payload for payload in payloads.to_pylist() if payload]
        return pa.StructArray.from_arrays([pa.array([int(each) for each in kept])], ["id"])

    columns, failures = ArrowRegistry(SCHEMA, decode).decode(binary(framed(b"1"), framed(b"")))
    assert columns.to_pylist() == [{"id": 1, "note": None}, None]
    assert failures[1].endswith("decode: 0 rows of 1 value")


def test_a_registry_that_cannot_be_reached_is_not_a_failure_of_a_value() -> None:
    def decode(_: int, __: Any) -> Any:
        raise ConnectionError("refused")

    with pytest.raises(ConnectionError, match="refused"):
        ArrowRegistry(SCHEMA, decode).decode(binary(framed(b"1"), framed(b"2")))


def test_what_a_wrong_function_returns_is_not_a_failure_of_a_value() -> None:
    def decode(_: int, __: Any) -> Any:
        return [{"id": 1}]

    def other_types(_: int, __: Any) -> Any:
        return pa.RecordBatch.from_pydict({"id": [[1]]})

    with pytest.raises(TypeError, match=r"decode returned a list: return a pyarrow.RecordBatch"):
        ArrowRegistry(SCHEMA, decode).decode(binary(framed(b"1")))
    with pytest.raises(NotImplementedError, match="cast"):
        ArrowRegistry(SCHEMA, other_types).decode(binary(framed(b"1")))


def test_what_is_given_is_checked() -> None:
    decode: Any = Numbers().decode
    with pytest.raises(ConfigError, match=r"ArrowRegistry needs a pyarrow.Schema, not 'id'"):
        ArrowRegistry("id", decode)
    with pytest.raises(ConfigError, match=r"decode=None cannot be called"):
        ArrowRegistry(SCHEMA, cast("Any", None))
    decoder: Any = ArrowRegistry(SCHEMA, decode)
    with pytest.raises(TypeError, match=r"gets a pyarrow.BinaryArray, not a StringArray"):
        decoder.decode(pa.array(["x"]))
    with pytest.raises(ConfigError, match="decoder=ArrowRegistry makes columns of many values"):
        Router(decoder=decoder).handler("orders")(print_order)


async def print_order(order: bytes) -> None: ...
