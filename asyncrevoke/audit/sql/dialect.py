"""The SQL in which DuckDB and Spark differ, as far as the rules need it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, LiteralString, Protocol

from asyncrevoke.audit.sql.text import Sql, compose, identifier, joined, literal
from asyncrevoke.journal.format.schema import BUCKET

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from asyncrevoke.audit.sql.text import Part, Text


class SqlDialect(Protocol):
    """Composes SQL expressions in the dialect of an engine.

    Implemented by :class:`DuckDialect` and :class:`SparkDialect`.
    """

    def identifier(self, name: str) -> Sql:
        """The quoted name of a table or column. Raises ValueError unless it is a word."""
        ...

    def array(self, *items: Text) -> Sql:
        """An array of these items."""
        ...

    def empty(self, kind: LiteralString) -> Sql:
        """An empty array of ``"STRING"`` or ``"INT"``."""
        ...

    def evidence(self, **fields: Text) -> Sql:
        """A JSON object of these fields."""
        ...

    def whole(self, number: Text, divisor: Part) -> Sql:
        """An integer division of non-negative numbers."""
        ...

    def hashed(self, number: Text) -> Sql:
        """A BIGINT hash of a number."""
        ...

    def bits(self, number: Text) -> Sql:
        """The aggregate of numbers from 0 up to, not including, ``BUCKET`` as a set of bits: equal
        for equal sets."""
        ...

    def distinct(self, number: Text) -> Sql:
        """The number of distinct numbers from 0 up to, not including, ``BUCKET``."""
        ...

    def quantiles(self, value: Text, *wanted: float) -> Sql:
        """An array of these quantiles of a value."""
        ...

    def covering(self, table: LiteralString, how: LiteralString = "") -> Sql:
        """The join of ``table`` with the row of ``covers`` whose ``beyond`` is the least above
        ``table.off``. ``how="LEFT"`` keeps rows without such a row."""
        ...


class DuckDialect:
    """SQL of DuckDB."""

    def identifier(self, name: str) -> Sql:
        """See :class:`SqlDialect`."""
        return identifier(name, '"')

    def array(self, *items: Text) -> Sql:
        """See :class:`SqlDialect`."""
        return compose("[{listed}]", listed=joined(", ", items))

    def empty(self, kind: LiteralString) -> Sql:
        """See :class:`SqlDialect`."""
        return compose("CAST([] AS {kind}[])", kind=kind)

    def evidence(self, **fields: Text) -> Sql:
        """See :class:`SqlDialect`."""
        given = _pairs(fields)
        return compose("CAST(json_object({given}) AS STRING)", given=given)

    def whole(self, number: Text, divisor: Part) -> Sql:
        """See :class:`SqlDialect`."""
        return compose("({number}) // ({divisor})", number=number, divisor=divisor)

    def hashed(self, number: Text) -> Sql:
        """See :class:`SqlDialect`."""
        return compose("CAST(hash({number}) >> 1 AS BIGINT)", number=number)

    def bits(self, number: Text) -> Sql:
        """See :class:`SqlDialect`."""
        return compose("bitstring_agg({number}, 0, {last})", number=number, last=BUCKET - 1)

    def distinct(self, number: Text) -> Sql:
        """See :class:`SqlDialect`."""
        return compose("coalesce(bit_count({bits}), 0)", bits=self.bits(number))

    def quantiles(self, value: Text, *wanted: float) -> Sql:
        """See :class:`SqlDialect`."""
        return compose(
            "quantile_cont({value}, [{wanted}])", value=value, wanted=joined(", ", wanted)
        )

    def covering(self, table: LiteralString, how: LiteralString = "") -> Sql:
        """See :class:`SqlDialect`."""
        return compose(
            "ASOF {how} JOIN covers ON covers.part = {table}.part AND {table}.off < covers.beyond",
            how=how,
            table=table,
        )


class SparkDialect:
    """SQL of Spark, valid in ANSI mode."""

    def identifier(self, name: str) -> Sql:
        """See :class:`SqlDialect`."""
        return identifier(name, "`")

    def array(self, *items: Text) -> Sql:
        """See :class:`SqlDialect`."""
        return compose("array({listed})", listed=joined(", ", items))

    def empty(self, kind: LiteralString) -> Sql:
        """See :class:`SqlDialect`."""
        return compose("CAST(array() AS ARRAY<{kind}>)", kind=kind)

    def evidence(self, **fields: Text) -> Sql:
        """See :class:`SqlDialect`."""
        given = _pairs(fields)
        return compose("to_json(named_struct({given}))", given=given)

    def whole(self, number: Text, divisor: Part) -> Sql:
        """See :class:`SqlDialect`."""
        return compose("(({number}) div ({divisor}))", number=number, divisor=divisor)

    def hashed(self, number: Text) -> Sql:
        """See :class:`SqlDialect`."""
        return compose("xxhash64({number})", number=number)

    def bits(self, number: Text) -> Sql:
        """See :class:`SqlDialect`. A bitmap of Spark has 32,768 bits and begins at 1."""
        return compose("bitmap_construct_agg(bitmap_bit_position(({number}) + 1))", number=number)

    def distinct(self, number: Text) -> Sql:
        """See :class:`SqlDialect`."""
        return compose("bitmap_count({bits})", bits=self.bits(number))

    def quantiles(self, value: Text, *wanted: float) -> Sql:
        """See :class:`SqlDialect`."""
        return compose(
            "percentile_approx({value}, array({wanted}), 10000)",
            value=value,
            wanted=_listed(wanted),
        )

    def covering(self, table: LiteralString, how: LiteralString = "") -> Sql:
        """See :class:`SqlDialect`. An equi-join by blocks of offsets, because Spark has no ASOF
        join."""
        within = in_piece(self, table, "covers", "above", "beyond")
        return compose("{how} JOIN covering_pieces AS covers ON {within}", how=how, within=within)


# The number of offsets in a block, by which records are joined with ranges.
PIECE: Final = 1024


def in_piece(
    sql: SqlDialect,
    table: LiteralString,
    ranges: LiteralString,
    lo: LiteralString,
    hi: LiteralString,
) -> Sql:
    """The condition that ``table.off`` is in one of these ranges, from column ``lo`` up to, not
    including, ``hi``. ``ranges`` has a row for each block of offsets (column ``piece``) that a
    range overlaps."""
    return compose(
        "{ranges}.part = {table}.part AND {ranges}.piece = {piece}"
        " AND {table}.off >= {ranges}.{lo} AND {table}.off < {ranges}.{hi}",
        ranges=ranges,
        table=table,
        piece=sql.whole(compose("{table}.off", table=table), PIECE),
        lo=lo,
        hi=hi,
    )


# The rows of ``covers``, split at blocks of offsets, for SparkDialect.
COVERING_PIECES = compose(
    """
    SELECT part, beyond, at_us, session, above,
           explode(sequence(above div {piece}, (beyond - 1) div {piece})) AS piece
    FROM (SELECT covers.part, beyond, at_us, session, greatest(above, known.lo) AS above
          FROM covers JOIN known ON known.part = covers.part)
    WHERE beyond > above
""",
    piece=PIECE,
)


def _listed(numbers: Sequence[float]) -> Sql:
    return joined(", ", [compose("{number}D", number=number) for number in numbers])


def _pairs(fields: Mapping[str, Text]) -> Sql:
    """Names as string literals, each followed by its value."""
    pairs = [
        compose("{name}, {value}", name=literal(name), value=value)
        for name, value in fields.items()
    ]
    return joined(", ", pairs)
