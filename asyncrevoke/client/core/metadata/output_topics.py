"""Topics that the consumer sends records to: dead letter topics, for example."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.client import log_events
from asyncrevoke.client.core.metadata.missing_topics import MissingTopics

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from asyncrevoke.client.core.io.effects import Node
    from asyncrevoke.client.core.io.outbox import Outbox
    from asyncrevoke.client.core.metadata.topic import TopicPartitions
    from asyncrevoke.client.protocol.messages import TopicMetadata


class OutputTopics:
    """Checks in each metadata response that these topics exist, and logs how to create them.

    ``bootstrap`` is the address that the command in the log names.
    """

    def __init__(self, outbox: Outbox, bootstrap: Node) -> None:
        self._log = MissingTopics(outbox, bootstrap)
        self._outbox = outbox
        self._topics: frozenset[str] = frozenset()
        self.missing: frozenset[str] = frozenset()

    def set_topics(self, topics: Iterable[str]) -> None:
        """Check these topics; to be called before the first request."""
        self._topics = frozenset(topics)

    def to_describe(self, wanted: frozenset[str] | None) -> frozenset[str] | None:
        """The topics of a request that is for ``wanted``; None: all."""
        return None if wanted is None else wanted | self._topics

    def learn(
        self,
        now: float,
        described: Mapping[str, tuple[TopicMetadata, TopicPartitions | None]],
    ) -> None:
        """Take a response that is about all of these topics."""
        self.missing = frozenset(
            name for name in self._topics if described.get(name, (None, None))[1] is None
        )
        for name in sorted(self._topics - self.missing):
            self._log.found(now, name)
        if (line := self._log.line_due(now, self.missing)) is not None:
            self._outbox.emit(log_events.OUTPUT_TOPICS_MISSING, **line)
