"""SQL as a type, so that only text of this source code becomes a query.

A query is a template, which the type checker accepts only as a literal, and parts, which are SQL
themselves or numbers. Untrusted values, such as the id of a session, are never parts: they are put
into a table, and the query joins that table.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, LiteralString, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


class Sql(str):
    """SQL that a function of this module has composed."""

    __slots__ = ()


Text: TypeAlias = LiteralString | Sql
Part: TypeAlias = LiteralString | Sql | int | float


def compose(template: LiteralString, /, **parts: Part) -> Sql:
    """The template with its ``{names}`` replaced by these parts. Raises ValueError for a number
    that SQL does not have."""
    return Sql(template.format_map({name: _text(part) for name, part in parts.items()}))


def joined(separator: LiteralString, parts: Iterable[Part]) -> Sql:
    """These parts, separated by ``separator``."""
    return Sql(separator.join(map(_text, parts)))


def identifier(name: str) -> Sql:
    """A table or column in quotes. Raises ValueError unless it is a word of letters, digits and
    ``_``."""
    return Sql(f'"{_checked(name)}"')


def columns(names: Iterable[str]) -> Sql:
    """Columns in quotes, separated by commas. Raises ValueError as :func:`identifier` does."""
    return joined(", ", map(identifier, names))


def literal(word: str) -> Sql:
    """A string literal. Raises ValueError unless it is a word: other texts must be put into
    tables."""
    return Sql(f"'{_checked(word)}'")


def _checked(word: str) -> str:
    if _WORD.fullmatch(word) is None:
        raise ValueError(f"{word!r} is not allowed in a query")
    return word


def _text(part: Part) -> str:
    if isinstance(part, float) and not math.isfinite(part):
        raise ValueError(f"{part} is not allowed in a query")
    return part if isinstance(part, str) else repr(part)
