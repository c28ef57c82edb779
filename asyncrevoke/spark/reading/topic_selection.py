"""Which topics and partitions are read: topics by name, by a pattern, or single partitions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from asyncrevoke.client.errors import ConfigError
from asyncrevoke.client.printable import shown_option

if TYPE_CHECKING:
    from asyncrevoke.client.core.queries.offset_queries import TopicDescription
    from asyncrevoke.client.model import TopicPartition


class TopicSelection(NamedTuple):
    """Topics, by ``names`` or by ``pattern``: a regular expression for whole names, which never
    selects internal topics. ``partitions`` limits topics of ``names`` to these partitions.
    Picklable."""

    names: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: Mapping[str, tuple[int, ...]] | None = None

    @property
    def described(self) -> tuple[str, ...] | None:
        """The topics to describe. None: all."""
        return self.names if self.pattern is None else None

    def selects_any_of(self, topic: str) -> bool:
        """Whether partitions of a topic are selected if it exists."""
        if self.pattern is not None:
            return re.compile(self.pattern).fullmatch(topic) is not None
        return topic in self.names

    def selects(self, tp: TopicPartition) -> bool:
        """Whether a partition is selected if it exists."""
        if self.partitions is not None:
            return tp.partition in self.partitions.get(tp.topic, ())
        return self.selects_any_of(tp.topic)

    def partitions_of(self, topics: Mapping[str, TopicDescription]) -> dict[str, tuple[int, ...]]:
        """The selected partitions of each selected topic that exists, in ascending order.

        Raises ConfigError if ``partitions`` has a partition that does not exist in an existing
        topic.
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
                    f"topic {shown_option(name)} has {len(found[name])} partitions, none with the "
                    f"number {unknown[0]}: correct assign="
                )
            if name in found:
                found[name] = tuple(sorted(set(wanted)))
        return found

    def __str__(self) -> str:
        """The selection, for messages."""
        if self.pattern is not None:
            return f"topic that matches {shown_option(self.pattern)}"
        return f"topic {', '.join(map(shown_option, self.names))}"
