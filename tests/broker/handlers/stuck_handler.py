"""A program to be killed: the handler of record 0 never ends, those of all others do at once.

Arguments: bootstrap servers, topic (also the group), completion_map. Prints each offset handled.
"""

import asyncio
import sys

from asyncrevoke import Consumer, Record


def stuck_consumer(servers: str, topic: str, completion_map: int) -> Consumer:
    """A static member, so that its successor need not wait for its session to expire."""
    consumer = Consumer(
        bootstrap_servers=servers,
        group_id=topic,
        group_instance_id="only",
        completion_map=completion_map,
        commit_interval=0.2,
        max_in_flight=100,
    )

    @consumer.handler(topic)
    async def handle(record: Record) -> None:
        print(record.offset, flush=True)  # noqa: T201 - the test reads it
        if record.offset == 0:
            await asyncio.Event().wait()

    return consumer


if __name__ == "__main__":
    asyncio.run(stuck_consumer(sys.argv[1], sys.argv[2], int(sys.argv[3])).run())
