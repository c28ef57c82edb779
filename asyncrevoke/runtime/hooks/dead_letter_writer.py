"""Dead letters, and who writes them where there are no brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence


class Letter(Protocol):
    """What is written to a dead letter topic."""

    @property
    def key(self) -> bytes | None:
        """The record's own key."""
        ...

    @property
    def value(self) -> bytes | None:
        """The record's own value."""
        ...

    @property
    def timestamp(self) -> int:
        """The record's own timestamp."""
        ...

    @property
    def headers(self) -> Sequence[tuple[str, bytes | None]]:
        """The record's own headers, and those that say why it is here."""
        ...


class LetterWriter(Protocol):
    """Who writes dead letters in a world without brokers."""

    async def send(self, topic: str, letter: Letter) -> None:
        """Write one to a topic."""
        ...

    async def aclose(self) -> None:
        """Nothing more is to be written."""
        ...
