"""Starts librdkafka's mock cluster, prints its addresses as one line, and ends when its standard
input is closed."""

from __future__ import annotations

import sys

from confluent_kafka import Producer

BROKERS = 3


def main() -> None:
    owner = Producer({"bootstrap.servers": "mock", "test.mock.num.brokers": BROKERS})
    brokers = owner.list_topics(timeout=10).brokers.values()
    sys.stdout.write(",".join(f"{broker.host}:{broker.port}" for broker in brokers) + "\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main()
