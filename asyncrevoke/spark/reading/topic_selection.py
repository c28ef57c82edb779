"""Which topics and partitions are read: topics by name, by a pattern, or single partitions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from asyncrevoke.errors import ConfigError
from asyncrevoke.printable import shown_option

if TYPE_CHECKING:
    from asyncrevoke.core.queries.topic_description import TopicDescription


class TopicSelection(NamedTuple):
    """``names`` are topics; or ``pattern`` is a regular expression that matches whole names of
    topics, not of internal ones. ``partitions`` has the numbers to read of topics of ``names``;
    without it, all partitions are read. Picklable."""

    names: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: Mapping[str, tuple[int, ...]] | None = None

    @property
    def described(self) -> tuple[str, ...] | None:
        """The topics to ask the brokers about; None: all."""
        return self.names if self.pattern is None else None

    def partitions_of(self, topics: Mapping[str, TopicDescription]) -> dict[str, tuple[int, ...]]:
        """The selected partitions of each selected topic that exists, in ascending order.

        Raises ConfigError if ``partitions`` names a partition that an existing topic does not have.
        """
        if self.pattern is not None:
            matches = re.compile(self.pattern).fullmatch
            names = [
                name
                for name, topic in topics.items()
                if not topic.is_internal and matches(name) is not None
            ]
        else:
            names = [name for name in self.names if name in topics]
        found = {name: tuple(sorted(topics[name].partitions)) for name in sorted(names)}
        for name, wanted in (self.partitions or {}).items():
            unknown = sorted(set(wanted) - set(found.get(name, wanted)))
            if unknown:
                raise ConfigError(
                    f"there is no partition {unknown[0]} of topic {shown_option(name)}, which has "
                    f"{len(found[name])}: correct assign="
                )
            if name in found:
                found[name] = tuple(sorted(set(wanted)))
        return found

    def __str__(self) -> str:
        """As messages name it."""
        if self.pattern is not None:
            return f"topic that matches {shown_option(self.pattern)}"
        return f"topic {', '.join(map(shown_option, self.names))}"
