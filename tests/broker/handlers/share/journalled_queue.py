"""A member of a share group to be killed: handles records with a journal, and prints how many.

Arguments: bootstrap servers, topic (also the group), folder.
"""

import asyncio
import sys

from asyncrevoke import Consumer, Record
from asyncrevoke.journal import Journal


async def main(servers: str, topic: str, folder: str) -> None:
    consumer = Consumer(
        bootstrap_servers=servers,
        group_id=topic,
        group_type="share",
        concurrency=16,
        journal=Journal(folder, strict=True),
    )
    handled = 0

    @consumer.handler(topic)
    async def handle(_record: Record) -> None:
        nonlocal handled
        await asyncio.sleep(0.005)
        handled += 1
        print(handled, flush=True)  # noqa: T201 - the test reads it

    await consumer.run()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
