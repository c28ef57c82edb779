"""Reads corrupt member data, in a process of its own: ``corrupt_subscriptions.py SEED COUNT``."""

from __future__ import annotations

import random
import resource
import sys
from contextlib import suppress

from wire.frames.response_frames import MEMORY_LIMIT, damage

from asyncrevoke.client.model import TopicPartition
from asyncrevoke.client.protocol.subscription import (
    MalformedMemberData,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)


def main(seed: int, count: int) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, MEMORY_LIMIT))
    rng = random.Random(seed)
    partitions = tuple(TopicPartition(topic, n) for topic in ("a", "bb") for n in range(3))
    subscription = Subscription(
        topics=("a", "bb"), owned=partitions, generation=3, rack="r", user_data=b"data"
    )
    valid = [encode_subscription(subscription, version) for version in range(4)]
    valid.append(encode_assignment(partitions, b"data"))
    read = 0
    for number in range(count):
        data = damage(valid[number % len(valid)], rng)
        with suppress(MalformedMemberData):
            decode_assignment(data)
        with suppress(MalformedMemberData):
            decode_subscription(data)
            read += 1
    sys.stdout.write(f"{read} {count - read}\n")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
