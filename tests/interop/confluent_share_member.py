"""A member of a share group by confluent-kafka that accepts what it is delivered until its standard
input ends: ``confluent_share_member.py BOOTSTRAP TOPIC GROUP MODE``. It prints what
``java/ShareMember.java`` prints, and leaves as that does."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException, ShareConsumer

if TYPE_CHECKING:
    from confluent_kafka import Message, TopicPartition


def say(what: str, partition: int | None, offset: int | None, *more: object) -> None:
    sys.stdout.write(" ".join(map(str, (what, partition, offset, *more))) + "\n")
    sys.stdout.flush()


def confirmed(offsets: dict[TopicPartition, set[int]], error: KafkaException | None) -> None:
    for tp, numbers in offsets.items():
        for offset in numbers:
            say("confirmed" if error is None else "refused", tp.partition, offset)


def deliver(consumer: ShareConsumer, timeout: float) -> list[Message]:
    batch: list[Message] = []
    for message in consumer.poll(timeout):
        if (error := message.error()) is not None:
            raise KafkaException(error)
        say("delivered", message.partition(), message.offset(), message.delivery_count())
        batch.append(message)
    return batch


def main(bootstrap: str, topic: str, group: str, mode: str) -> None:
    leaving = threading.Event()

    def wait() -> None:
        sys.stdin.read()
        leaving.set()

    threading.Thread(target=wait, daemon=True).start()
    consumer = ShareConsumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "share.acknowledgement.mode": mode,
            "max.poll.records": 20,
        }
    )
    consumer.set_acknowledgement_commit_callback(confirmed)
    consumer.subscribe([topic])
    last = False
    while not last:
        last = leaving.is_set()
        batch = deliver(consumer, 1.0 if last else 0.1)
        accepted = len(batch) // 2 if last else len(batch)
        for n, message in enumerate(batch):
            if mode == "explicit" and n < accepted:
                consumer.acknowledge(message)
            elif last:
                say("unaccepted", message.partition(), message.offset())
    consumer.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
