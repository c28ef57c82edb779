"""Mails in a share group: any worker sends any mail, and a slow one delays no other.

Start as many workers as you like, also more than the topic has partitions. A mail whose worker is
killed is delivered again: at once if another worker has its partition, else after 45 s. One that
fails three times goes to --letters.

    asyncrevoke groups configure mailing share.auto.offset.reset=earliest
    python examples/groups/share_group.py --bootstrap localhost:9092 --group mailing

Needs Apache Kafka 4.2. The topics --topic and --letters must exist.
"""

import argparse
import asyncio
import random

from asyncrevoke import Consumer, Record, Retry


def make_consumer(bootstrap: str, topic: str, letters: str, group: str) -> Consumer:
    """A consumer that sends the mails of a topic."""
    consumer = Consumer(bootstrap_servers=bootstrap, group_id=group, group_type="share")

    @consumer.handler(topic, retry=Retry(attempts=3, backoff=0.1), dead_letter=letters)
    async def send(mail: bytes, record: Record) -> None:
        await asyncio.sleep(random.uniform(0.0, 0.05))
        if mail.startswith(b"bad"):
            raise ValueError("no such address")
        print("sent", mail.decode(), "delivery", record.delivery_count, flush=True)

    return consumer


def main() -> None:
    parser = argparse.ArgumentParser(description="Any worker sends any mail.")
    parser.add_argument("--bootstrap", default="localhost:9092", help="the broker's host:port")
    parser.add_argument("--topic", default="mails")
    parser.add_argument("--letters", default="mails.dlq", help="the topic of mails that fail")
    parser.add_argument("--group", default="mailing")
    args = parser.parse_args()

    asyncio.run(make_consumer(args.bootstrap, args.topic, args.letters, args.group).run())


if __name__ == "__main__":
    main()
