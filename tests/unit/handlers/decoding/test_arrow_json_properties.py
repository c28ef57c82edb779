"""``ArrowJson`` decodes each value as a parser of single values does: ``json.loads``, and a
conversion of what it returns to the Arrow type."""

from __future__ import annotations

import json
import re
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

pytest.importorskip("numpy", reason="needs the extra arrow")
pytest.importorskip("pyarrow", reason="needs the extra arrow")

import numpy as np

from asyncrevoke.client.columns.arrow import pa
from asyncrevoke.handlers.decoding import arrow_json
from asyncrevoke.handlers.decoding.arrow_json import ArrowJson

if TYPE_CHECKING:
    from collections.abc import Callable

Text = st.SearchStrategy[str]

NAMES = ["a", "b", "order-id", "class", "", "é", "$", "__class__", "field_0", "a.b"]
NUMBERS = [
    *("0", "-0", "1", "-1", "127", "128", "-129", "255", "256", "2147483648", "12.34", "0.1"),
    *("9223372036854775807", "9223372036854775808", "18446744073709551615", "18446744073709551616"),
    *("1.0", "1e2", "-1.5", "1e400", "1e-400", "3.4028235e38", "3.5e38", "12345678.90", "1.230"),
    *("1e-9999999", "0e-50", "1e50", "1" * 50, "0." + "0" * 50, "01", "+1", "NaN", "-Infinity"),
]
TIMES = [
    *("2024-02-29", "2023-02-29", "2024-02-29T03:04:05", "2024-02-29 03:04", "2024-02-29T03:04:60"),
    *("2024-02-29T24:00:00", "2024-02-29T03:04:05Z", "2024-02-29T03:04:05.123456+02:00", "now", ""),
    *("2024-02-29T03:04:05.123", "2024-02-29T03:04:05.123456", "2024-02-29T03:04:05.123456789"),
    *("1600-01-01", "2300-01-01", "2300-01-01T00:00:00Z", " 2024-02-29", "1709175845", "2024-2-29"),
]
BROKEN = [
    *(b"", b" ", b"null", b"1", b'"x"', b"[]", b"[{}]", b"{", b"}", b'{"a":', b"1}", b"{}{}"),
    *(b"{}\n{}", b"{} null", b"{},{}", b"\xef\xbb\xbf{}", b'{"z":"\xff"}', b'{"a":1}\x00', b"\n"),
]
TYPES = [
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float", "double", "string", "large_string", "date32"),
]
# An older pyarrow takes times out of the range of nanoseconds for others.
UNITS = ("s", "ms", "us", "ns") if int(pa.__version__.split(".")[0]) >= 23 else ("s", "ms", "us")
SCALARS = [
    *map(pa.type_for_alias, TYPES),
    *(pa.timestamp(unit, zone) for unit in UNITS for zone in (None, "UTC")),
    pa.decimal128(10, 2),
    pa.decimal128(38, 0),
    pa.decimal256(50, 10),
]


class FailsError(Exception):
    """The oracle's: the value does not decode."""


class Number(str):
    """The text of a number."""


class Pairs(list[Any]):
    """The fields of an object, in their order."""


def parsed(value: bytes) -> Any:
    def refuse(constant: str) -> None:
        raise FailsError(constant)

    try:
        found = json.loads(
            value.decode("utf-8"),
            parse_int=Number,
            parse_float=Number,
            parse_constant=refuse,
            object_pairs_hook=Pairs,
        )
        # An escaped half of a surrogate pair.
        repr_of_all(found).encode()
    except ValueError:
        raise FailsError from None
    return found


def repr_of_all(found: Any) -> str:
    if isinstance(found, (list, tuple)):
        return "".join(map(repr_of_all, cast("list[Any]", found)))
    return str(found)


def number(found: Any) -> Number:
    if not isinstance(found, Number):
        raise FailsError
    return found


def integer(kind: Any, found: Any, placed: bool) -> int:
    text = number(found)
    if not re.fullmatch(r"-?\d+", text):
        raise FailsError
    limits: Any = np.iinfo(str(kind))
    if not limits.min <= int(text) <= limits.max and (placed or kind != pa.uint64()):
        raise FailsError
    return int(text)


def floating(kind: Any, found: Any, placed: bool) -> float:
    value = float(number(found))
    most = np.finfo(kind.to_pandas_dtype()).max
    if abs(value) > most:
        raise FailsError
    return float(np.float32(value)) if kind == pa.float32() else value


def decimal(kind: Any, found: Any, placed: bool) -> Decimal:
    if not isinstance(found, str):
        raise FailsError
    try:
        value = Decimal(found)
    except ArithmeticError:
        raise FailsError from None
    if not placed:
        return value
    if not value.is_finite() or abs(value.adjusted()) > 1000:
        if value.is_finite() and not value:
            return Decimal(0)
        raise FailsError
    shifted = Fraction(value) * 10**kind.scale
    if shifted.denominator != 1 or abs(shifted) >= 10**kind.precision:
        raise FailsError
    return value


TIME = re.compile(
    r"(\d{4}-\d\d-\d\d)(?:[ T](\d\d:\d\d)(?::(\d\d)(?:\.(\d+))?)?(Z|[+-]\d\d:\d\d)?)?", re.ASCII
)


def timestamp(kind: Any, found: Any, placed: bool) -> int:
    """In units since 1970."""
    split = TIME.fullmatch(text(kind, found, placed))
    if not placed:
        return 0
    if split is None or bool(split[5]) != bool(kind.tz):
        raise FailsError
    digits: int = {"s": 0, "ms": 3, "us": 6, "ns": 9}[kind.unit]
    fraction = split[4] or ""
    if len(fraction) > digits:
        raise FailsError
    zone = "+00:00" if split[5] in (None, "Z") else split[5]
    try:
        at = datetime.fromisoformat(f"{split[1]}T{split[2] or '00:00'}:{split[3] or '00'}{zone}")
    except ValueError:
        raise FailsError from None
    seconds = (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(seconds=1)
    units: int = seconds * 10**digits + int(fraction.ljust(digits, "0") or 0)
    if not -(2**63) <= units < 2**63:
        raise FailsError
    return units


def day(kind: Any, found: Any, placed: bool) -> date:
    shown = text(kind, found, placed)
    if not placed:
        return date.min
    if not re.fullmatch(r"\d{4}-\d\d-\d\d", shown, re.ASCII):
        raise FailsError
    try:
        return date.fromisoformat(found)
    except ValueError:
        raise FailsError from None


def text(_: Any, found: Any, placed: bool) -> str:
    if type(found) is not str:
        raise FailsError
    return found


def boolean(_: Any, found: Any, placed: bool) -> bool:
    if not isinstance(found, bool):
        raise FailsError
    return found


def array(kind: Any, found: Any, placed: bool) -> list[Any]:
    if type(cast("object", found)) is not list:
        raise FailsError
    return [cell(kind.value_field, element, placed) for element in found]


def mapping(kind: Any, found: Any, placed: bool) -> list[tuple[str, Any]]:
    if not isinstance(found, Pairs):
        raise FailsError
    for _, element in found:
        cell(kind.item_field, element, placed=False)
    return [(name, cell(kind.item_field, at, placed)) for name, at in dict(found).items()]


def struct(fields: Any, found: Any, placed: bool, *, ignores: bool = True) -> dict[str, Any]:
    if not isinstance(found, Pairs):
        raise FailsError
    known = {field.name: field for field in fields}
    if not ignores and any(name not in known for name, _ in found):
        raise FailsError
    for name, element in found:
        if name in known:
            cell(known[name], element, placed=False)
    last = dict(found)
    return {name: cell(field, last.get(name), placed) for name, field in known.items()}


def cell(field: Any, found: Any, placed: bool) -> Any:
    """Unless ``placed``, another value of the same field follows, and its kind alone counts."""
    kind = field.type
    if found is None:
        if not field.nullable:
            raise FailsError
        return None
    types = pa.types
    if types.is_struct(kind):
        return struct([kind.field(number) for number in range(kind.num_fields)], found, placed)
    converters: list[tuple[Callable[[Any], bool], Callable[[Any, Any, bool], Any]]] = [
        (types.is_integer, integer),
        (types.is_floating, floating),
        (types.is_decimal, decimal),
        (types.is_timestamp, timestamp),
        (types.is_date, day),
        (types.is_boolean, boolean),
        (types.is_list, array),
        (types.is_large_list, array),
        (types.is_map, mapping),
    ]
    convert = next((convert for fits, convert in converters if fits(kind)), text)
    return convert(kind, found, placed)


def as_numbers(kind: Any) -> Any:
    """The type with int64 in place of timestamps, which have the same memory: Python's have neither
    nanoseconds nor the year 10,000. All fields may be null, as those of a null struct are."""
    types = pa.types
    if types.is_timestamp(kind):
        return pa.int64()
    if types.is_struct(kind):
        fields = [kind.field(number) for number in range(kind.num_fields)]
        return pa.struct([nullable(field) for field in fields])
    if types.is_map(kind):
        return pa.map_(kind.key_type, nullable(kind.item_field))
    if types.is_list(kind):
        return pa.list_(nullable(kind.value_field))
    if types.is_large_list(kind):
        return pa.large_list(nullable(kind.value_field))
    return kind


def nullable(field: Any) -> Any:
    return field.with_type(as_numbers(field.type)).with_nullable(True)


def literals(strings: Text) -> Text:
    return strings.map(json.dumps)


ANY_TEXT = literals(st.text(max_size=5) | st.sampled_from(TIMES) | st.sampled_from(NUMBERS))
SIMPLE = st.sampled_from(["null", "true", "false", *NUMBERS, '"\\ud800"', '"\\u0000"']) | ANY_TEXT
SPACE = st.sampled_from(["", "", "", " ", "\n", "\r\n\t"])


def objects(members: st.SearchStrategy[list[tuple[str, str]]]) -> Text:
    def joined(space: str, pairs: list[tuple[str, str]]) -> str:
        inside = f"{space},{space}".join(
            f"{json.dumps(name)}{space}:{space}{value}" for name, value in pairs
        )
        return f"{space}{{{space}{inside}{space}}}{space}"

    return st.builds(joined, SPACE, members)


def arrays(elements: Text) -> Text:
    return st.lists(elements, max_size=3).map(lambda given: f"[{','.join(given)}]")


ANYTHING = st.recursive(
    SIMPLE,
    lambda inner: (
        arrays(inner) | objects(st.lists(st.tuples(st.sampled_from(NAMES), inner), max_size=3))
    ),
    max_leaves=6,
)


def matching(kind: Any) -> Text:
    """Texts of which many decode as this type."""
    types = pa.types
    if types.is_struct(kind):
        return object_of([kind.field(number) for number in range(kind.num_fields)])
    if types.is_list(kind) or types.is_large_list(kind):
        return arrays(text_of(kind.value_field))
    if types.is_map(kind):
        pair = st.tuples(st.sampled_from(NAMES), text_of(kind.item_field))
        return objects(st.lists(pair, max_size=3))
    if types.is_boolean(kind):
        return st.sampled_from(["true", "false"])
    if types.is_integer(kind):
        return st.integers(0, 127).map(str)
    if types.is_floating(kind):
        return st.floats(-1e30, 1e30).map(repr)
    if types.is_decimal(kind):
        numbers = st.decimals(-99999, 99999, places=min(kind.scale, 2)).map(str)
        return numbers | literals(numbers)
    if types.is_timestamp(kind):
        times = st.integers(-(10**9), 10**9).map(lambda at: datetime.fromtimestamp(at, UTC))
        zone = "Z" if kind.tz else ""
        return literals(times.map(lambda at: f"{at:%Y-%m-%dT%H:%M:%S}{zone}"))
    if types.is_date(kind):
        return literals(st.dates().map(str))
    return ANY_TEXT


def text_of(field: Any) -> Text:
    fits = matching(field.type)
    return st.one_of(fits, fits, fits, st.just("null") if field.nullable else fits, SIMPLE)


def object_of(fields: list[Any]) -> Text:
    given = [st.tuples(st.just(field.name), text_of(field)) for field in fields]
    more = st.lists(st.one_of(*given, st.tuples(st.sampled_from(NAMES), ANYTHING)), max_size=2)

    def chosen(members: tuple[Any, ...], others: list[Any], left_out: int, *, first: bool) -> Any:
        kept = [pair for place, pair in enumerate(members) if place != left_out]
        return others + kept if first else kept + others

    return objects(
        st.builds(
            chosen,
            st.tuples(*given),
            st.just([]) | more,
            st.just(-1) | st.integers(0, len(fields) - 1),
            first=st.booleans(),
        )
    )


def fields_of(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    field = st.builds(pa.field, st.sampled_from(NAMES), inner, st.booleans())
    return st.lists(field, min_size=1, max_size=4, unique_by=lambda field: field.name)


def list_of(kind: Any, null: bool) -> Any:
    return pa.list_(pa.field("item", kind, null))


KINDS = st.recursive(
    st.sampled_from(SCALARS),
    lambda inner: st.one_of(
        fields_of(inner).map(pa.struct),
        st.builds(list_of, inner, st.booleans()),
        inner.map(pa.large_list),
        inner.map(lambda kind: pa.map_(pa.string(), kind)),
    ),
    max_leaves=4,
)


@st.composite
def blocks(draw: st.DrawFn) -> tuple[Any, list[bytes | None]]:
    fields = draw(fields_of(KINDS))
    whole = object_of(fields).map(str.encode)

    def damaged(value: bytes, at: int, byte: int) -> bytes:
        place = at % (len(value) + 1)
        return value[:place] + bytes([byte]) + value[place + 1 :]

    def cut(value: bytes, at: int) -> bytes:
        return value[: at % (len(value) + 1)]

    def joined(*parts: bytes) -> bytes:
        return b"".join(parts)

    values = st.one_of(
        whole,
        whole,
        whole,
        st.none(),
        st.sampled_from(BROKEN),
        st.builds(damaged, whole, st.integers(0, 400), st.integers(0, 255)),
        st.builds(cut, whole, st.integers(0, 400)),
        st.builds(joined, whole, SPACE.map(str.encode), whole),
    )
    return pa.schema(fields), draw(st.lists(values, max_size=8))


TWICE = [b'{"a":"","a":"2024-01-01"}', b'{"a":"2024-01-01","a":""}', b'{"a":1,"a":"2024-01-01"}']


@given(block=blocks(), ignores=st.booleans(), large=st.booleans(), cells=st.integers(1, 20))
@example(
    block=(pa.schema({"a": pa.int8()}), [b'{"a":1}', *BROKEN, None]),
    ignores=True,
    large=False,
    cells=3,
)
@example(block=(pa.schema({"a": pa.date32()}), TWICE), ignores=True, large=True, cells=9)
@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
def test_row_n_is_value_n_as_a_parser_of_single_values_reads_it(
    block: tuple[Any, list[bytes | None]], *, ignores: bool, large: bool, cells: int
) -> None:
    schema, values = block
    expected: list[Any] = []
    failing: list[int] = []
    for row, value in enumerate(values):
        try:
            expected.append(
                None
                if value is None
                else struct(schema, parsed(value), placed=True, ignores=ignores)
            )
        except FailsError:
            expected.append(None)
            failing.append(row)
    decoder = ArrowJson(schema, unexpected_fields="ignore" if ignores else "error")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decoder, "_block_rows", cells)
        patch.setattr(arrow_json, "_BLOCK_BYTES", 50)
        array = pa.array(values, pa.large_binary() if large else pa.binary())
        columns, failures = decoder.decode(array)
    assert columns.type == pa.struct(list(schema))
    columns.validate(full=True)
    assert list(failures) == failing
    assert columns.view(as_numbers(columns.type)).to_pylist() == expected
