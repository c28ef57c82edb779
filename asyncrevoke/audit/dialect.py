"""What DuckDB and Spark write differently, of all that the rules need."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence


class Dialect(Protocol):
    """Makes expressions of expressions."""

    def array(self, *items: str) -> str:
        """An array of these."""
        ...

    def empty(self, kind: str) -> str:
        """An array of nothing, of ``"STRING"`` or ``"INT"``."""
        ...

    def evidence(self, **fields: str) -> str:
        """JSON."""
        ...

    def whole(self, number: str, divisor: str) -> str:
        """A division of whole numbers that are not negative, without the rest."""
        ...

    def hashed(self, number: str) -> str:
        """A BIGINT that looks like chance."""
        ...

    def quantiles(self, value: str, *wanted: float) -> str:
        """An array of them."""
        ...

    def covering(self, table: str, how: str = "") -> str:
        """The join of ``table`` with the one row of ``covers`` whose ``beyond`` is the least above
        ``table.off``; ``how`` is LEFT to keep rows that have none."""
        ...


class DuckDialect:
    """SQL of DuckDB."""

    def array(self, *items: str) -> str:
        """See :class:`Dialect`."""
        return f"[{', '.join(items)}]"

    def empty(self, kind: str) -> str:
        """See :class:`Dialect`."""
        return f"CAST([] AS {kind}[])"

    def evidence(self, **fields: str) -> str:
        """See :class:`Dialect`."""
        given = ", ".join(f"'{name}', {value}" for name, value in fields.items())
        return f"CAST(json_object({given}) AS STRING)"

    def whole(self, number: str, divisor: str) -> str:
        """See :class:`Dialect`."""
        return f"({number}) // ({divisor})"

    def hashed(self, number: str) -> str:
        """See :class:`Dialect`."""
        return f"CAST(hash({number}) >> 1 AS BIGINT)"

    def quantiles(self, value: str, *wanted: float) -> str:
        """See :class:`Dialect`."""
        return f"quantile_cont({value}, {list(wanted)})"

    def covering(self, table: str, how: str = "") -> str:
        """See :class:`Dialect`."""
        return (
            f"ASOF {how} JOIN covers ON covers.part = {table}.part AND {table}.off < covers.beyond"
        )


class SparkDialect:
    """SQL of Spark, without what ANSI mode refuses."""

    def array(self, *items: str) -> str:
        """See :class:`Dialect`."""
        return f"array({', '.join(items)})"

    def empty(self, kind: str) -> str:
        """See :class:`Dialect`."""
        return f"CAST(array() AS ARRAY<{kind}>)"

    def evidence(self, **fields: str) -> str:
        """See :class:`Dialect`."""
        given = ", ".join(f"'{name}', {value}" for name, value in fields.items())
        return f"to_json(named_struct({given}))"

    def whole(self, number: str, divisor: str) -> str:
        """See :class:`Dialect`."""
        return f"(({number}) div ({divisor}))"

    def hashed(self, number: str) -> str:
        """See :class:`Dialect`."""
        return f"xxhash64({number})"

    def quantiles(self, value: str, *wanted: float) -> str:
        """See :class:`Dialect`."""
        return f"percentile_approx({value}, array({_listed(wanted)}), 10000)"

    def covering(self, table: str, how: str = "") -> str:
        """An equal join by pieces of offsets: Spark has no other that is fast at any size."""
        within = in_piece(self, table, "covers", "above", "beyond")
        return f"{how} JOIN covering_pieces AS covers ON {within}"


# Offsets that are joined together with the ranges in which they are.
PIECE: Final = 1024


def in_piece(sql: Dialect, table: str, ranges: str, lo: str, hi: str) -> str:
    """Whether ``table.off`` lies in one of these ranges, from column ``lo`` on up to and without
    ``hi``: each has a row for every piece of offsets, ``piece``, that it is in a part of."""
    return (
        f"{ranges}.part = {table}.part"
        f" AND {ranges}.piece = {sql.whole(f'{table}.off', str(PIECE))}"
        f" AND {table}.off >= {ranges}.{lo} AND {table}.off < {ranges}.{hi}"
    )


# Parts of ``covers``, for SparkDialect.
COVERING_PIECES = f"""
    SELECT part, beyond, at_us, session, above,
           explode(sequence(above div {PIECE}, (beyond - 1) div {PIECE})) AS piece
    FROM (SELECT covers.part, beyond, at_us, session, greatest(above, known.lo) AS above
          FROM covers JOIN known ON known.part = covers.part)
    WHERE beyond > above
"""


def _listed(numbers: Sequence[float]) -> str:
    return ", ".join(f"{number}D" for number in numbers)
