"""Topics that do not exist, also those that the consumer writes to: one log line for all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from asyncrevoke.client import log_events
from asyncrevoke.client.backoff import Backoff
from asyncrevoke.client.config.topics import create_topics_command

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from asyncrevoke.client.core.io.effects import Node
    from asyncrevoke.client.core.io.outbox import Outbox
    from asyncrevoke.client.core.metadata.topic import TopicPartitions
    from asyncrevoke.client.protocol.messages import TopicMetadata

# Seconds between two lines about the same topics.
_FIRST_REPEAT: Final = 10.0
_LONGEST_REPEAT: Final = 300.0
# How many topics a line names.
_LISTED_TOPICS: Final = 10


class MissingTopics:
    """Remembers since when topics are missing, and when a line about them is due: at once when a
    further topic is missing, and then after 10 s, 20 s and so on, at most every 5 minutes.

    ``emit`` takes an event and its fields. ``bootstrap`` is the address in the line's command that
    creates the topics; None: the line has no command.
    """

    def __init__(self, emit: Callable[..., None], bootstrap: Node | None) -> None:
        self._emit = emit
        self._bootstrap = bootstrap
        self._since: dict[str, float] = {}
        self._repeat = Backoff(_FIRST_REPEAT, _LONGEST_REPEAT)
        self._next = 0.0

    def line_due(self, now: float, topics: Iterable[str]) -> Mapping[str, object] | None:
        """A response reports these topics as unknown, and no others: the fields of the line, None
        if none is due."""
        names = sorted(topics)
        before = self._since
        self._since = {name: before.get(name, now) for name in names}
        if not names:
            self._repeat.succeeded()
            return None
        if not self._since.keys() <= before.keys():
            self._repeat.succeeded()
        elif now < self._next:
            return None
        self._next = now + self._repeat.failed()
        listed = names[:_LISTED_TOPICS]
        line: dict[str, object] = {"topics": listed, "count": len(names)}
        if (bootstrap := self._bootstrap) is not None:
            line["create"] = create_topics_command(bootstrap.host, bootstrap.port, listed)
        line["seconds"] = round(now - min(self._since.values()), 1)
        return line

    def found(self, now: float, topic: str) -> None:
        """A response describes this topic: log that it is available, if it was missing."""
        since = self._since.pop(topic, None)
        if since is not None:
            seconds = round(now - since, 1)
            self._emit(log_events.TOPIC_AVAILABLE, topic=topic, seconds=seconds)


class OutputTopics:
    """The topics that the consumer sends records to, dead letter topics for example: checks in each
    metadata response that they exist, and logs how to create them.

    ``bootstrap`` is the address that the command in the log names.
    """

    def __init__(self, outbox: Outbox, bootstrap: Node) -> None:
        self._log = MissingTopics(outbox.emit, bootstrap)
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
