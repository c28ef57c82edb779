"""A member that is killed: the handler of record 0 never ends, those of all others do at once.

Arguments: bootstrap servers, topic (also the group). Prints each offset.
"""

from __future__ import annotations

import asyncio
import sys

from broker.servers.programs.world import SESSION_TIMEOUT

from asyncrevoke import Consumer, Record


async def main(servers: str, topic: str) -> None:
    """A static member, so that its successor need not wait for the end of its session."""
    consumer = Consumer(
        bootstrap_servers=servers,
        group_id=topic,
        group_instance_id="only",
        auto_offset_reset="earliest",
        session_timeout=SESSION_TIMEOUT,
        order_by=None,
        commit_interval=0.2,
        max_in_flight=100,
    )

    @consumer.handler(topic)
    async def handle(record: Record) -> None:
        sys.stdout.write(f"{record.offset}\n")
        sys.stdout.flush()
        if record.offset == 0:
            await asyncio.Event().wait()

    await consumer.run()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
