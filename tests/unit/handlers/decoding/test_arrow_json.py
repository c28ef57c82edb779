"""Columns of JSON values: which row fails and why, which types are read, and what is refused."""

from __future__ import annotations

import subprocess
import sys
from datetime import date, datetime
from decimal import Decimal
from typing import Any, cast

import pytest

pytest.importorskip("numpy", reason="needs the extra arrow")
pytest.importorskip("pyarrow", reason="needs the extra arrow")

from asyncrevoke import ArrowJson, Consumer, Router
from asyncrevoke.client.columns.arrow import pa
from asyncrevoke.client.errors import ConfigError
from asyncrevoke.handlers.decoding import arrow_json, binary_values

ORDERS = pa.schema([("id", pa.int64()), pa.field("note", pa.string(), nullable=False)])
AT = datetime(2024, 1, 2, 3, 4, 5, 123000)  # noqa: DTZ001 - as pyarrow makes them
GOOD = b'{"id":1,"note":"x"}'
WITHOUT_PACKAGE = """
import sys
sys.modules[{package!r}] = None
from asyncrevoke import ArrowJson
"""


def binary(*values: bytes | None) -> Any:
    return pa.array(values, pa.binary())


def reason(value: bytes, schema: Any = ORDERS, **options: Any) -> str:
    """Why the second of three values does not decode."""
    columns, failures = ArrowJson(schema, **options).decode(binary(None, value, None))
    assert columns.to_pylist() == [None, None, None]
    assert list(failures) == [1]
    return failures[1]


def one(kind: Any, value: str) -> Any:
    """The cell of a value, or the failure."""
    columns, failures = ArrowJson(pa.schema([("a", kind)])).decode(
        binary(f'{{"a":{value}}}'.encode())
    )
    return failures[0].rpartition(": ")[2] if failures else columns.to_pylist()[0]["a"]


def test_tombstones_are_null_rows_and_no_failures() -> None:
    columns, failures = ArrowJson(ORDERS).decode(binary(None, GOOD, None))
    assert columns.to_pylist() == [None, {"id": 1, "note": "x"}, None]
    assert failures == {}


def test_no_values_are_no_rows() -> None:
    columns, failures = ArrowJson(ORDERS).decode(binary())
    assert (columns.type, len(columns), failures) == (pa.struct(list(ORDERS)), 0, {})


@pytest.mark.parametrize(
    ("value", "described"),
    [
        (b"null", "Expected `object`, got `null`"),
        (b"1", "Expected `object`, got `int`"),
        (b"[]", "Expected `object`, got `array`"),
        (b" ", "Input data was truncated"),
        (GOOD + GOOD, "JSON is malformed: trailing characters at byte 20"),
        (GOOD + b"\n" + GOOD, "JSON is malformed: trailing characters at byte 21"),
        (GOOD + b",", "JSON is malformed: trailing characters at byte 20"),
        (b"\xef\xbb\xbf" + GOOD, "JSON is malformed: invalid character at byte 0"),
        (b'{"id":1,"note":"\xff"}', "no utf-8 at byte 16"),
        (b'{"note":"","more":"\xff"}', "no utf-8 at byte 19"),
        (b'{"id":"secret","note":""}', "Expected `int | null`, got `str` at $.id"),
        (b'{"id":9223372036854775808,"note":""}', "Expected `int` <= 9223372036854775807 at $.id"),
        (b'{"id":1.0,"note":""}', "Expected `int | null`, got `float` at $.id"),
        (b'{"id":1}', "Object missing required field `note`"),
        (b'{"id":1,"note":null}', "Expected `str`, got `null` at $.note"),
        (b'{"note":"","more":' + b"[" * 100_000, "nested too deeply"),
    ],
)
def test_a_value_that_does_not_decode_is_named_with_the_reason_and_without_its_content(
    value: bytes, described: str
) -> None:
    assert reason(value) == f"the value does not decode with ArrowJson: {described}"


def test_an_empty_value_is_not_a_tombstone() -> None:
    assert reason(b"") == "the value is empty"


def test_parts_of_one_document_in_two_values_make_no_row() -> None:
    values = binary(b'{"id":1,', b'"note":"x"}', GOOD, b'{"note":"', b'"}')
    columns, failures = ArrowJson(ORDERS).decode(values)
    assert columns.to_pylist() == [None, None, {"id": 1, "note": "x"}, None, None]
    assert list(failures) == [0, 1, 3, 4]


def test_a_value_may_have_line_breaks_and_space_around_it() -> None:
    value = b'\r\n {\n  "id": 1,\n  "note": "x"\n}\t\n'
    assert ArrowJson(ORDERS).decode(binary(value)).columns.to_pylist() == [{"id": 1, "note": "x"}]


def test_of_a_field_that_is_there_twice_the_last_counts() -> None:
    value = b'{"id":1,"note":"x","id":2,"id":null,"note":"y"}'
    columns, failures = ArrowJson(ORDERS).decode(binary(value))
    assert (columns.to_pylist(), failures) == ([{"id": None, "note": "y"}], {})


def test_unexpected_fields_are_left_out_or_fail() -> None:
    value = b'{"id":1,"note":"x","secret":{"id":2}}'
    assert ArrowJson(ORDERS).decode(binary(value)).columns.to_pylist() == [{"id": 1, "note": "x"}]
    assert reason(value, unexpected_fields="error").endswith(": an unknown field")
    inner = pa.schema([("a", pa.list_(pa.struct([("b", pa.int8())])))])
    assert reason(b'{"a":[{"c":1}]}', inner, unexpected_fields="error").endswith(
        ": an unknown field at $.a[0]"
    )


@pytest.mark.parametrize(
    ("kind", "value", "cell"),
    [
        (pa.timestamp("ms"), '"2024-01-02T03:04:05.123"', AT),
        (pa.timestamp("ms"), '"2024-01-02T03:04:05.1234"', "Expected `timestamp[ms]` at $.a"),
        (pa.timestamp("ms"), '"2024-01-02T03:04:05Z"', "Expected `timestamp[ms]` at $.a"),
        (pa.timestamp("us"), "1704164645", "Expected `str | null`, got `int` at $.a"),
        (pa.date32(), '"2024-01-02"', date(2024, 1, 2)),
        (pa.date32(), '"2024-01-02T00:00:00"', "Expected `date32[day]` at $.a"),
        (pa.decimal128(5, 2), "123.45", Decimal("123.45")),
        (pa.decimal128(5, 2), '"123.450"', Decimal("123.45")),
        (pa.decimal128(5, 2), "123.456", "Expected `decimal128(5, 2)` at $.a"),
        (pa.decimal128(5, 2), "1234.5", "Expected `decimal128(5, 2)` at $.a"),
        (pa.decimal128(5, 2), '"NaN"', "Expected `decimal128(5, 2)` at $.a"),
        (pa.decimal128(5, 2), "1e-100000000", "Expected `decimal128(5, 2)` at $.a"),
        (pa.decimal128(5, 2), "0e-100000000", Decimal("0.00")),
        (pa.uint64(), "18446744073709551615", 2**64 - 1),
        (pa.uint64(), "18446744073709551616", "Expected `uint64` at $.a"),
        (pa.float32(), "1e39", "Expected `float` <= 3.4028234663852886e+38 at $.a"),
        (pa.float64(), "1e400", "an invalid value at $.a"),
        (pa.float64(), "7", 7.0),
        (pa.map_(pa.string(), pa.int8()), '{"k":1,"l":null}', [("k", 1), ("l", None)]),
        (pa.large_list(pa.int8()), "[1,null]", [1, None]),
        # pyarrow's reader of JSON refuses this null.
        (pa.struct([pa.field("b", pa.int8(), nullable=False)]), "null", None),
    ],
)
def test_cells_of_types_that_json_does_not_have(kind: Any, value: str, cell: object) -> None:
    assert one(kind, value) == cell


def test_failures_of_several_columns_and_blocks_are_in_the_order_of_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(arrow_json, "_BLOCK_BYTES", 100)
    schema = pa.schema([("at", pa.timestamp("s")), ("amount", pa.decimal128(4, 1))])
    values = [b'{"at":"2024-01-01","amount":%d}' % row for row in range(100)]
    values[7], values[3], values[99] = b'{"amount":1.25}', b'{"at":"never","amount":1.25}', b"x"
    columns, failures = ArrowJson(schema).decode(binary(*values))
    assert list(failures) == [3, 7, 99]
    rows = columns.to_pylist()
    assert [row for row in range(100) if rows[row] is None] == [3, 7, 99]
    assert [int(row["amount"]) for row in rows if row] == [
        row for row in range(99) if row not in (3, 7)
    ]
    # Nothing of a value that failed is left below the null row.
    assert columns.field("amount").null_count == columns.null_count == 3


def test_one_bad_cell_of_a_block_is_found_in_few_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    decoder = ArrowJson(pa.schema([("at", pa.timestamp("s"))]))
    (cells,) = decoder._row.cells
    attempts: list[int] = []

    def counted(given: Any) -> Any:
        attempts.append(len(given))
        return cells.array(given)

    monkeypatch.setattr(decoder._row, "cells", [cells._replace(array=counted)])
    values = [b'{"at":"2024-01-01"}'] * 10_000
    values[6543] = b'{"at":"never"}'
    assert list(decoder.decode(binary(*values)).failures) == [6543]
    assert len(attempts) < 40


def test_a_value_larger_than_a_block_is_a_block_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(arrow_json, "_BLOCK_BYTES", 100)
    note = "x" * 1000
    values = binary(GOOD, b'{"note":"%s"}' % note.encode(), GOOD)
    rows = ArrowJson(ORDERS).decode(values).columns.to_pylist()
    assert [row["note"] for row in rows] == ["x", note, "x"]


def test_a_slice_of_an_array_is_decoded_alone() -> None:
    values = binary(b"x", GOOD, None, b"x").slice(1, 2)
    assert ArrowJson(ORDERS).decode(values).columns.to_pylist() == [{"id": 1, "note": "x"}, None]


@pytest.mark.parametrize(
    ("values", "named"),
    [
        (pa.array(["{}"]), "StringArray of string"),
        (pa.chunked_array([[b"{}"]]), "ChunkedArray of binary"),
        ([b"{}"], "list"),
    ],
)
def test_other_arrays_are_refused_with_a_sentence(values: Any, named: str) -> None:
    with pytest.raises(TypeError, match=f"gets a pyarrow.BinaryArray, not a {named}: "):
        ArrowJson(ORDERS).decode(values)


def test_more_bytes_than_a_column_of_strings_holds_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(binary_values, "_MOST_BYTES", len(GOOD))
    ArrowJson(ORDERS).decode(binary(GOOD))
    with pytest.raises(ValueError, match="at most 19 bytes at once, not 38: slice the array"):
        ArrowJson(ORDERS).decode(binary(GOOD, GOOD))


@pytest.mark.parametrize(
    ("schema", "sentence"),
    [
        (["id"], r"ArrowJson needs a pyarrow.Schema, not \['id'\]"),
        (pa.schema([]), r"the struct at \$ has no fields"),
        (pa.schema([("a", pa.int8()), ("a", pa.int8())]), r"two fields at \$ have the name 'a'"),
        (pa.schema([('"', pa.int8())]), r"the field '\"' at \$ is not read from JSON"),
        (pa.schema([("a", pa.binary())]), r"\$.a is binary, .*: declare it string, and cast"),
        (pa.schema([("a", pa.time32("s"))]), r"\$.a is time32\[s\], .*: declare it int64"),
        (pa.schema([("a", pa.duration("s"))]), r"\$.a is duration\[s\], .*: declare it int64"),
        (pa.schema([("a", pa.float16())]), r"\$.a is halffloat, .*: declare it float32"),
        (pa.schema([("a", pa.date64())]), r"\$.a is date64\[ms\], .*: declare it date32"),
        (
            pa.schema([("a", pa.list_(pa.struct([("b", pa.null())])))]),
            r"\$.a\[...\].b is null, which is not read from JSON",
        ),
        (pa.schema([("a", pa.map_(pa.int8(), pa.int8()))]), "names of a JSON object are string"),
    ],
)
def test_a_schema_that_does_not_fit_is_refused_with_a_sentence(schema: Any, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        ArrowJson(schema)


def test_nanoseconds_are_refused_if_pyarrow_takes_later_dates_for_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Wrong:
        """An array of pyarrow 22, which overflows in silence."""

        def cast(self, _: object) -> None: ...

    def wrong(*_: object) -> Wrong:
        return Wrong()

    nanoseconds = pa.schema([("at", pa.timestamp("ns", "UTC"))])
    monkeypatch.setattr(pa, "array", wrong)
    with pytest.raises(
        ConfigError, match=r"\$.at is timestamp\[ns, tz=UTC\], .* after the year 2262"
    ):
        ArrowJson(nanoseconds)
    ArrowJson(pa.schema([("at", pa.timestamp("us", "UTC"))]))


def test_an_unknown_option_value_is_refused_with_a_sentence() -> None:
    with pytest.raises(ConfigError, match=r"unexpected_fields='fail' .*: use \"ignore\" or"):
        ArrowJson(ORDERS, unexpected_fields=cast("Any", "fail"))


def test_handlers_that_receive_no_columns_refuse_it_with_a_sentence() -> None:
    async def record(order: bytes) -> None: ...
    async def batch(orders: list[dict[str, object]]) -> None: ...

    decoder = ArrowJson(ORDERS)
    sentence = r"decoder=ArrowJson makes columns of many values, and .* does not receive columns"
    consumer = Consumer(bootstrap_servers="127.0.0.1:9", group_id="a", decoder=decoder)
    for handlers in (consumer, Router(decoder=decoder)):
        with pytest.raises(ConfigError, match=sentence):
            handlers.handler("orders")(record)
    with pytest.raises(ConfigError, match=sentence):
        Router().handler("orders", decoder=decoder)(record)
    with pytest.raises(ConfigError, match=sentence):
        Router().handler("orders", decoder=decoder, batch=True)(batch)


@pytest.mark.parametrize("package", ["numpy", "pyarrow"])
def test_without_its_packages_the_import_names_the_extra(package: str) -> None:
    script = WITHOUT_PACKAGE.format(package=package)
    command = [sys.executable, "-c", script]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ran.stderr.splitlines()[-1] == (
        f"ModuleNotFoundError: ArrowJson needs {package}: pip install 'asyncrevoke[arrow]'"
    )
