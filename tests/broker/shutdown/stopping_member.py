"""A program to be stopped by SIGTERM, whose parts do not end by themselves.

Arguments: bootstrap servers, topic (also the group), group protocol, what does not end, and
close_timeout. Prints each offset whose handler begins, and "closed" when run() has returned.
"""

import asyncio
import sys
import time
from collections.abc import Callable

from asyncrevoke import Consumer, Record, TopicPartition
from asyncrevoke.consumer import RebalanceListener
from asyncrevoke.journal import Journal
from asyncrevoke.journal.recording import writer
from asyncrevoke.journal.segments import Segment


async def ignoring_cancellation() -> None:
    """Never end, whatever happens."""
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            continue


def never_sealed(segment: Segment, _stop: Callable[[], bool]) -> Segment:
    """Seal for ever, in a thread, without looking at whether it is to stop."""
    time.sleep(3600)
    return segment


class Stuck(RebalanceListener):
    """Does not return when partitions are given up."""

    async def on_partitions_revoked(self, revoked: frozenset[TopicPartition]) -> None:
        """Never end."""
        await ignoring_cancellation()


async def main(servers: str, topic: str, protocol: str, stuck: str, close_timeout: str) -> None:
    """Run until told to stop."""
    if stuck == "journal":
        setattr(writer, "seal", never_sealed)  # noqa: B010 - what it is takes no other
    consumer = Consumer(
        bootstrap_servers=servers,
        group_id=topic,
        group_protocol="consumer" if protocol == "consumer" else "classic",
        close_timeout=float(close_timeout),
        commit_interval=0.2,
        # The coordinator of KIP-848 does not say whether the next owner reads completion maps.
        revoke_gaps="drop" if stuck == "slow key" else "process",
        listener=Stuck() if stuck == "listener" else None,
        journal=Journal("journal") if stuck == "journal" else None,
    )

    @consumer.handler(topic)
    async def handle(record: Record) -> None:
        print(record.offset, flush=True)  # noqa: T201 - the test reads it
        if stuck == "handler":
            await asyncio.Event().wait()
        elif stuck == "swallowing handler":
            await ignoring_cancellation()
        elif stuck == "slow key" and record.key == b"slow":
            await asyncio.sleep(0.5)

    await consumer.run()
    print("closed", flush=True)  # noqa: T201 - the test reads it


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:6]))
