"""Writes dead letters in tests, where there are no brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence


class DeadLetterContent(Protocol):
    """A record for a dead letter topic."""

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
        """The record's own headers, and those that describe its failure."""
        ...


class DeadLetterWriter(Protocol):
    """Writes dead letters without brokers."""

    async def send(self, topic: str, letter: DeadLetterContent) -> None:
        """Write a dead letter to a topic."""

    async def aclose(self) -> None:
        """No further dead letters follow."""
