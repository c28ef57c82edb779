"""A real Apache Kafka without Docker, for demos, tests and benchmarks."""

from asyncrevoke.broker.broker import KafkaBroker
from asyncrevoke.broker.choice import start_broker
from asyncrevoke.broker.cluster import KafkaCluster
from asyncrevoke.broker.errors import BrokerMissingError, BrokerRequestError, BrokerStartError
from asyncrevoke.broker.running import RunningBroker
from asyncrevoke.broker.security import Security

__all__ = [
    "BrokerMissingError",
    "BrokerRequestError",
    "BrokerStartError",
    "KafkaBroker",
    "KafkaCluster",
    "RunningBroker",
    "Security",
    "start_broker",
]
