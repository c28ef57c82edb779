"""Methods of a consumer that choose what it reads: subscribe and assign."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from asyncrevoke.client.config.topics import check_pattern, check_topics, reject_both
from asyncrevoke.client.errors import ConfigError, IllegalStateError
from asyncrevoke.client.model import BrokerPattern, TopicPartition
from asyncrevoke.client.printable import some_names
from asyncrevoke.client.runtime.session.partition_calls import (
    Partition,
    SessionCalls,
    to_partitions,
)

if TYPE_CHECKING:
    import re
    from collections.abc import Iterable

    from asyncrevoke.client.config import ConsumerConfig, GroupProtocol


def read_from(
    topics: tuple[object, ...], pattern: object, call: str, protocol: GroupProtocol
) -> tuple[tuple[str, ...], re.Pattern[str] | BrokerPattern | None]:
    """Check topics and pattern from a user's arguments; ``call`` is the method for messages."""
    names, expression = check_topics(topics, call), check_pattern(pattern)
    reject_both(names, expression)
    if isinstance(expression, BrokerPattern) and protocol != "consumer":
        raise ConfigError(
            f'a BrokerPattern needs group_protocol="consumer", and this consumer has "{protocol}": '
            "choose that, or give the pattern as text, which the client matches by `re`"
        )
    return names, expression


class SubscriptionCalls(SessionCalls):
    """Topics, a pattern, or manually assigned partitions; before and after entering."""

    _config: ConsumerConfig

    def __init__(
        self, topics: tuple[str, ...], pattern: re.Pattern[str] | BrokerPattern | None
    ) -> None:
        self._topics = topics
        self._pattern = pattern
        self._assigned: list[TopicPartition] | None = None

    def _handled(self) -> tuple[str | None, frozenset[str]] | None:
        """The pattern, or the topics, of the handlers; None without handlers."""
        raise NotImplementedError

    @property
    def _has_handlers(self) -> bool:
        return self._handled() is not None

    @property
    def _group_protocol(self) -> GroupProtocol:
        raise NotImplementedError

    def __repr__(self) -> str:
        """What it reads, and its state; nothing of how it authenticates."""
        pattern, topics = self._handled() or (self._pattern, self._topics)
        if pattern is not None:
            reads = f"pattern {_text_of(pattern)!r}"
        else:
            reads = some_names(sorted(topics or map(str, self._assigned or ()))) or "no topics"
        group = "no group" if self._config.group_id is None else f"group {self._config.group_id!r}"
        servers = some_names(self._config.bootstrap_servers)
        return f"<{type(self).__name__} of {reads}, {group}, at {servers}: {self._state()}>"

    def _state(self) -> str:
        session = self._running
        if session is None:
            return "not entered"
        if session.failure is not None:
            return "failed"
        if session.closing:
            return "closed" if session.closed else "closing"
        return "entered"

    def subscribe(
        self, *topics: str, pattern: str | re.Pattern[str] | BrokerPattern | None = None
    ) -> None:
        """Replace the subscription; the assignment follows with the next rebalance (KIP-70)."""
        names, expression = read_from(topics, pattern, "subscribe", self._group_protocol)
        if not names and expression is None:
            raise ConfigError("subscribe needs topics or a pattern; to end it, unsubscribe()")
        if self._assigned is not None:
            raise ConfigError(
                "partitions were assigned by hand: topics and assign() exclude each other, "
                "await unsubscribe() first"
            )
        if self._has_handlers:
            raise ConfigError(
                "a consumer with handlers reads the topics of its handlers: register a handler"
            )
        if self._session is not None:
            session = self._entered()
            session.call(session.core.subscription_state.subscribe, names, expression)
        self._topics, self._pattern = names, expression

    async def unsubscribe(self) -> None:
        """Drain, commit, release, leave the group; then nothing is subscribed or assigned.

        Takes ``close_timeout`` at most: partitions whose commits were not acknowledged by then are
        lost, and their uncommitted records are processed again. After that, raises the error of a
        rejected final commit. If cancelled, it goes on without being waited for.
        """
        self._topics, self._pattern, self._assigned = (), None, None
        if self._session is not None:
            await self._entered().unsubscribe()

    def assign(self, partitions: Iterable[Partition]) -> None:
        """Read exactly these partitions, without group membership; replaces earlier ones.

        With a ``group_id`` offsets are committed, and other consumers can commit for the same
        partitions.
        """
        wanted = to_partitions(partitions)
        if self._topics or self._pattern is not None or self._has_handlers:
            raise ConfigError(
                "topics are subscribed: topics and assign() exclude each other, construct the "
                "consumer without topics, or await unsubscribe() first"
            )
        if self._session is not None:
            session = self._entered()
            session.call(session.core.subscription_state.assign, wanted)
        self._assigned = wanted

    async def wait_for_assignment(self) -> frozenset[TopicPartition]:
        """Wait until the group has assigned partitions to this consumer, and return them: at once
        if it has some.

        Takes no records, and completes none, so that a script can seek or request end offsets
        before its first step. A group with more members than partitions leaves some without any,
        and then this waits; use it inside ``asyncio.timeout``. Raises IllegalStateError if nothing
        is subscribed or assigned, a FatalError, and ConsumerClosedError if the consumer closes
        first. Cancelling it changes nothing.
        """
        session = self._entered()
        if not (self._topics or self._pattern is not None or self._assigned or self._has_handlers):
            raise IllegalStateError(
                "nothing is subscribed: give the consumer topics, or call subscribe() or assign()"
            )
        result = await session.ask(session.core.wait_for_assignment)
        return cast("frozenset[TopicPartition]", result)

    def subscription(self) -> frozenset[str]:
        """The subscribed topics: for a pattern those that match now, and for a BrokerPattern those
        of the assigned partitions."""
        if self._session is None:
            return frozenset(self._topics)
        return self._readable().core.subscription_state.subscription()


def _text_of(pattern: str | re.Pattern[str] | BrokerPattern) -> str:
    if isinstance(pattern, BrokerPattern):
        return pattern.regex
    return pattern if isinstance(pattern, str) else pattern.pattern
