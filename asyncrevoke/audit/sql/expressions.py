"""Expressions in the SQL of DuckDB."""

from __future__ import annotations

from typing import LiteralString

from asyncrevoke.audit.sql.text import Part, Sql, Text, compose, joined, literal
from asyncrevoke.journal.format.schema import BUCKET


def array(kind: LiteralString, *items: Text) -> Sql:
    """An array of these items, of a type such as ``"STRING"``."""
    return compose("CAST([{listed}] AS {kind}[])", kind=kind, listed=joined(", ", items))


def evidence(**fields: Text) -> Sql:
    """A JSON object of these fields."""
    pairs = [
        compose("{name}, {value}", name=literal(name), value=value)
        for name, value in fields.items()
    ]
    return compose("CAST(json_object({given}) AS STRING)", given=joined(", ", pairs))


def whole(number: Text, divisor: Part) -> Sql:
    """An integer division of non-negative numbers."""
    return compose("({number}) // ({divisor})", number=number, divisor=divisor)


def hashed(number: Text) -> Sql:
    """A BIGINT hash of a number."""
    return compose("CAST(hash({number}) >> 1 AS BIGINT)", number=number)


def bits(number: Text) -> Sql:
    """The aggregate of numbers from 0 up to, not including, ``BUCKET`` as a set of bits: equal for
    equal sets."""
    return compose("bitstring_agg({number}, 0, {last})", number=number, last=BUCKET - 1)


def distinct(number: Text) -> Sql:
    """The number of distinct numbers from 0 up to, not including, ``BUCKET``."""
    return compose("coalesce(bit_count({bits}), 0)", bits=bits(number))


def covering(table: LiteralString, how: LiteralString = "") -> Sql:
    """The join of ``table`` with the row of ``covers`` whose ``beyond`` is the least above
    ``table.off``. ``how="LEFT"`` keeps rows without such a row."""
    return compose(
        "ASOF {how} JOIN covers ON covers.part = {table}.part AND {table}.off < covers.beyond",
        how=how,
        table=table,
    )
