"""A program: a member that publishes the value of each input record.

Arguments: the input topic (also the group), the output topic, and the consumer's options as JSON.
Prints the number of each handled record, and "closed" when run() has returned.
"""

import asyncio
import json
import logging
import random
import sys

from asyncrevoke import Consumer, Record


async def main(topic: str, output: str, options: str) -> None:
    """Run until told to stop."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    consumer = Consumer(**json.loads(options), group_id=topic)
    rng = random.Random()

    @consumer.handler(topic, publish_to=output)
    async def handle(record: Record) -> bytes | None:
        # Some records of a partition end long after later ones.
        await asyncio.sleep(rng.random() * (0.3 if rng.random() < 0.02 else 0.01))
        print(int(record.value or b""), flush=True)  # noqa: T201 - the driver reads it
        return record.value

    await consumer.run()
    print("closed", flush=True)  # noqa: T201 - the driver reads it


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:4]))
