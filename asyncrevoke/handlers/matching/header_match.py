"""Matches records by a header."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from asyncrevoke.client.errors import ConfigError
from asyncrevoke.client.printable import shown_option

if TYPE_CHECKING:
    from asyncrevoke.client.model import Record


class HeaderMatch:
    """A predicate on a record's header, see :func:`by_header`."""

    __slots__ = ("_name", "_values", "_written")

    def __init__(self, name: str, values: tuple[str | bytes, ...]) -> None:
        self._name = name
        self._written = values
        self._values = frozenset(
            value.encode() if isinstance(value, str) else value for value in values
        )

    def __call__(self, record: Record) -> bool:
        """Whether the last header of this name has one of the values."""
        name = self._name
        for header, value in reversed(record.headers):
            if header == name:
                return not self._values or value in self._values
        return False

    def __repr__(self) -> str:
        """The call of :func:`by_header`."""
        return f"by_header({', '.join(map(repr, (self._name, *self._written)))})"


def by_header(name: str, *values: str | bytes) -> HeaderMatch:
    """Match records by a header, as in ``where=by_header("type", "paid")``.

    The header matches with one of ``values``, or with any value if none is given. Text is compared
    in UTF-8. If a record has several headers of this name, the last one counts, as in Kafka's
    ``Headers.lastHeader``.

    Raises ConfigError.
    """
    if not isinstance(cast("object", name), str) or not name:
        raise ConfigError(
            f'by_header({shown_option(name)}): use the header\'s name, as in by_header("type")'
        )
    for value in values:
        if not isinstance(cast("object", value), (str, bytes)):
            raise ConfigError(
                f"by_header({shown_option(name)}, {shown_option(value)}): values of headers are "
                "bytes, so give str (compared in UTF-8) or bytes, each as a separate argument"
            )
    return HeaderMatch(name, values)
