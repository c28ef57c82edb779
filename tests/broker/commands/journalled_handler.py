"""A program to be killed: handles records, 3,000 at most, with a journal, and prints how many.

Arguments: bootstrap servers, topic (also the group), folder, "strict" (content by batches), "fast"
(by records) or "bare" (without), and the topic that takes the journal as well, if any.
"""

import asyncio
import sys

from asyncrevoke import Consumer, Record
from asyncrevoke.journal import Journal, KafkaSink
from asyncrevoke.journal.format.schema import Content

# However late the signal comes, it comes in the middle of the work.
MOST = 3000
CONTENT: dict[str, Content] = {"fast": "records", "strict": "batches"}


async def main(servers: str, topic: str, folder: str, mode: str, sink: str) -> None:
    to_topic = KafkaSink(sink, bootstrap_servers=servers) if sink else None
    consumer = Consumer(
        bootstrap_servers=servers,
        group_id=topic,
        group_instance_id="only",
        commit_interval=0.05,
        journal=Journal(folder, strict=mode == "strict", content=CONTENT.get(mode), sink=to_topic),
    )
    handled = 0

    @consumer.handler(topic)
    async def handle(record: Record) -> None:
        nonlocal handled
        if record.offset >= MOST:
            await asyncio.Event().wait()
        await asyncio.sleep(0.005)
        handled += 1
        if handled % 50 == 0:
            print(handled, flush=True)  # noqa: T201 - the test reads it

    await consumer.run()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
