"""The one broker that all clients of a measurement share."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from asyncrevoke.broker import KafkaBroker
from asyncrevoke.broker.choice import VARIABLE, ExternalBroker

if TYPE_CHECKING:
    from asyncrevoke.broker.running import RunningBroker

PROPERTIES = {
    "group.initial.rebalance.delay.ms": "0",  # the first member need not wait for others
    "group.consumer.min.heartbeat.interval.ms": "1000",
    "group.consumer.heartbeat.interval.ms": "1000",  # Kafka's 5 s would hide all else of KIP-848
    "group.share.min.record.lock.duration.ms": "1000",  # a handler of twice the lock is measured
}


def measured_broker() -> RunningBroker:
    """A broker with Kafka's own speed; that of ``ASYNCREVOKE_BROKER=HOST:PORT`` if it is set."""
    given = os.environ.get(VARIABLE, "")
    if ":" in given:
        return ExternalBroker(given)
    return KafkaBroker(quick=False, heap="1g", properties=PROPERTIES)


def topic_name(name: str) -> str:
    """A topic of this process alone: several measurements may share a broker."""
    return f"{name}-{os.getpid()}"
