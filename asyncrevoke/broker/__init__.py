"""A real Apache Kafka without Docker, for demos, tests and benchmarks.

Names are loaded when they are first used (PEP 562): importing kio would slow down every command.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.client.lazy_names import lazy_names

if TYPE_CHECKING:
    from asyncrevoke.broker.broker import KafkaBroker
    from asyncrevoke.broker.choice import start_broker
    from asyncrevoke.broker.cluster import KafkaCluster
    from asyncrevoke.broker.errors import BrokerMissingError, BrokerRequestError, BrokerStartError
    from asyncrevoke.broker.listeners.security import Security, unsigned_token
    from asyncrevoke.broker.running import RunningBroker

__all__ = [
    "BrokerMissingError",
    "BrokerRequestError",
    "BrokerStartError",
    "KafkaBroker",
    "KafkaCluster",
    "RunningBroker",
    "Security",
    "start_broker",
    "unsigned_token",
]

__getattr__ = lazy_names(
    __name__,
    {
        ".broker": ("KafkaBroker",),
        ".choice": ("start_broker",),
        ".cluster": ("KafkaCluster",),
        ".errors": ("BrokerMissingError", "BrokerRequestError", "BrokerStartError"),
        ".listeners.security": ("Security", "unsigned_token"),
        ".running": ("RunningBroker",),
    },
)
