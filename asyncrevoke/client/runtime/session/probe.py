"""Liveness and readiness of a consumer, for orchestrators."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple, TypedDict

from asyncrevoke.client.core.membership.classic.state_table import ClassicState
from asyncrevoke.client.model import FailurePause, GroupMetadata, Health, TopicPartition
from asyncrevoke.client.printable import MOST_NAMES, counted, some_names
from asyncrevoke.client.runtime.session.partition_calls import SessionCalls
from asyncrevoke.client.runtime.session.status import HANDLER_GRACE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from asyncrevoke.client.config import ConsumerConfig
    from asyncrevoke.client.runtime.session.entered_session import EnteredSession

# Until the other members have joined, the coordinator confirms nothing.
_JOINING = (ClassicState.AWAIT_JOIN.value, ClassicState.AWAIT_SYNC.value)


class ProbeDetails(TypedDict):
    """A :class:`Probe` for JSON; without error messages, which may quote records.

    ``paused_because`` names, for partitions that a failure has paused, the handler, the offset and
    the type of the error.
    """

    group: str | None
    live: bool
    ready: bool
    reasons: list[str]
    state: str | None
    assigned: int
    in_flight: int
    paused: list[str]
    paused_because: dict[str, str]


class Probe(NamedTuple):
    """The result of ``Consumer.probe``; ``reasons`` explain a False.

    ``live`` is False if only a restart helps: the consumer or its handlers have failed, or a
    handler has exceeded its limit. ``ready`` is also False before the group was joined, while the
    coordinator or a broker that leads a partition does not respond, while a topic that it
    subscribes to does not exist (unless ``allow_missing_topics``) or brokers reject it, while a
    schema registry does not respond (see :class:`Outage`), while
    failed records cannot be written to a dead letter topic or retry topic, while transactions have
    not been committed for longer than ``request_timeout``, and while closing. A consumer without
    partitions can be both.
    ``health`` is None before the consumer is entered.
    """

    live: bool
    ready: bool
    reasons: tuple[str, ...]
    group: str | None
    health: Health | None

    def details(self) -> ProbeDetails:
        """For JSON, without confidential text."""
        health = self.health
        paused = () if health is None else health.paused_partitions
        return ProbeDetails(
            group=self.group,
            live=self.live,
            ready=self.ready,
            reasons=list(self.reasons),
            state=None if health is None else health.state,
            assigned=0 if health is None else health.assigned,
            in_flight=0 if health is None else health.in_flight,
            paused=[str(tp) for tp in sorted(paused)],
            paused_because={} if health is None else dict(map(_why_paused, health.failure_pauses)),
        )


def probe(
    config: ConsumerConfig,
    session: EnteredSession | None,
    health: Health | None,
    max_handler_age: float | None,
) -> Probe:
    """Probe a consumer with this session; None before it is entered."""
    if session is None or health is None:
        return Probe(True, False, ("it is not entered yet",), config.group_id, None)
    dead = list(_why_dead(session, health, max_handler_age))
    unready = [] if dead else list(_why_unready(config, session, health))
    reasons = (*dead, *unready)
    return Probe(not dead, not reasons, reasons, config.group_id, health)


class StatusCalls(SessionCalls):
    """Methods of a consumer about its state."""

    _config: ConsumerConfig

    def _needs_group(self, call: str) -> None:
        raise NotImplementedError

    def group_metadata(self) -> GroupMetadata:
        """The identity of this member in its group; generation -1 before it has joined."""
        self._needs_group("group_metadata")
        return self._still_open(self._entered_in_any_group()).group_metadata()

    def health(self) -> Health:
        """The state of the consumer, for a health check."""
        return self._entered_in_any_group().status.snapshot().health

    def probe(self, *, max_handler_age: float | None = None) -> Probe:
        """Liveness and readiness, for an orchestrator; not ready before the consumer is entered.

        Not live if a handler runs for more than ``max_handler_age`` seconds, or for more than 5 s
        beyond its ``max_handler_time``.
        """
        session = self._running
        health = None if session is None else self.health()
        return probe(self._config, session, health, max_handler_age)


def _why_dead(
    session: EnteredSession, health: Health, max_handler_age: float | None
) -> Iterator[str]:
    failure = health.error if session.failure is None else session.failure
    if failure is not None:
        yield f"it has failed: {type(failure).__name__}, see the log"
    for call in health.running:
        own = call.max_handler_time
        limits = [max_handler_age] if own is None else [max_handler_age, own + HANDLER_GRACE]
        if any(limit is not None and call.seconds > limit for limit in limits):
            where = f"{call.topic}-{call.partition} at offset {call.offset}"
            yield f"{call.handler} has been running for {call.seconds:.0f} s: {where}"


def _why_unready(config: ConsumerConfig, session: EnteredSession, health: Health) -> Iterator[str]:
    if session.stopping:
        yield "it is closing, or closed"
    elif config.group_id is not None:
        if health.heartbeat_age is None:
            yield "it has not joined its group yet"
        elif health.heartbeat_age > health.session_timeout and health.state not in _JOINING:
            yield f"the coordinator was last heard {health.heartbeat_age:.0f} s ago"
    if config.allow_missing_topics:
        health = health._replace(missing_topics=frozenset())
    yield from _unavailable(health)
    if health.share is not None and health.share.refused_sessions:
        refused = some_names(health.share.refused_sessions)
        yield f"brokers accept no further share session: {refused}"
    for held in health.unwritten[:MOST_NAMES]:
        records = counted(held.records, "failed record")
        yield f"{records} cannot be written to {held.to_topic}: {held.reason}"
    for outage in health.outages[:MOST_NAMES]:
        kind = outage.reason.partition(":")[0]
        yield f"{outage.name} has not responded for {outage.seconds:.0f} s ({kind})"
    if (waits := health.transactions) is not None and (waits.seconds or 0) > config.request_timeout:
        records = counted(waits.records, "finished record")
        yield f"no transaction was committed for {waits.seconds:.0f} s: {records} wait"


def _unavailable(health: Health) -> Iterator[str]:
    """What the consumer cannot read from: brokers and topics, a sentence for each reason."""
    if health.unreachable_brokers:
        yield f"brokers do not respond: {some_names(health.unreachable_brokers)}"
    if health.missing_topics:
        yield f"topics do not exist: {some_names(sorted(health.missing_topics))}"
    if health.rejected_topics:
        rejected = some_names(sorted(health.rejected_topics))
        yield f"the brokers reject requests for topics: {rejected}"


def _why_paused(pause: FailurePause) -> tuple[str, str]:
    kind = pause.error.partition(":")[0]
    until = "resume()" if pause.probe_after == math.inf else "it succeeds"
    return (
        str(TopicPartition(pause.topic, pause.partition)),
        f"{pause.handler} has failed at offset {pause.offset} ({kind}): paused until {until}",
    )
