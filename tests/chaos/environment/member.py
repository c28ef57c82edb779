"""One member, a process: ``python member.py CONFIG``, CONFIG a :class:`MemberConfig` as JSON.

It writes each handler call to a log of its own and journals (strictly). SIGTERM ends it as
``run()`` does. Lines on standard input make the next handler calls misbehave: ``hang SECONDS``,
``block SECONDS``, ``raise COUNT``, ``cancel COUNT``. The end of standard input, which is the end of
the process that started it, ends it at once.
"""

import asyncio
import json
import logging
import os
import sys
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, Literal

import msgspec

from asyncrevoke import AssignedPartition, Consumer, HandlerContext, Record, Retry
from asyncrevoke.cli.demo.member.asyncrevoke_member import Ownership
from asyncrevoke.cli.demo.member.handler_log import HandlerLog
from asyncrevoke.journal import Journal


class MemberConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a member needs; ``options`` are further options of the consumer. If ``states``
    names a folder, partitions have lifespans, which store there what they have counted."""

    name: str
    topic: str
    log: str
    journal: str
    content: Literal["batches", "records"]
    options: dict[str, Any]
    states: str | None = None


class Misbehaviour:
    """What the next handler calls are to do instead of returning in time."""

    def __init__(self) -> None:
        self._next: deque[tuple[str, float]] = deque()

    def read(self) -> None:
        """Read commands for ever, in a thread of its own: a blocked event loop reads none."""
        for line in sys.stdin:
            what, amount = line.split()
            if what in {"raise", "cancel"}:
                self._next.extend([(what, 0.0)] * int(amount))
            else:
                self._next.append((what, float(amount)))
        os._exit(1)

    def fail(self) -> None:
        """Fail before the work begins, if that is next."""
        if self._next and self._next[0][0] in {"raise", "cancel"}:
            what, _ = self._next.popleft()
            raise RuntimeError("a handler fails") if what == "raise" else asyncio.CancelledError

    async def delay(self) -> None:
        """Take too long at the work, if that is next."""
        if self._next and self._next[0][0] in {"hang", "block"}:
            what, seconds = self._next.popleft()
            if what == "hang":
                await asyncio.sleep(seconds)
            else:
                time.sleep(seconds)  # noqa: ASYNC251 - that is the fault


def store_counted(consumer: Consumer, folder: Path) -> None:
    """Let each partition have a set of offsets as its state. A lifespan that ends appends the
    offsets to the partition's file."""

    @consumer.partition_lifespan
    async def counted(partition: AssignedPartition) -> AsyncGenerator[set[int]]:
        offsets: set[int] = set()
        yield offsets
        with (folder / f"{partition.topic}-{partition.partition}").open("a") as file:
            file.write(f"{json.dumps(sorted(offsets))}\n")


async def serve(config: MemberConfig, misbehaviour: Misbehaviour) -> None:
    """Handle records until SIGTERM. A record's value says how long its handler takes."""
    log = HandlerLog(Path(config.log), config.name)
    consumer = Consumer(
        # No partition of a share group has an owner.
        listener=None if config.options.get("group_type") == "share" else Ownership(log),
        journal=Journal(config.journal, strict=True, content=config.content),
        client_id=config.name,
        **config.options,
    )
    retry = Retry(attempts=20, backoff=0.05, max_backoff=0.2)
    if config.states is not None:
        store_counted(consumer, Path(config.states))

    @consumer.handler(config.topic, retry=retry)
    async def work(record: Record, context: HandlerContext[None, None, set[int] | None]) -> None:
        # The log has one line for each time that the work begins; failed attempts before that are
        # in the journal.
        misbehaviour.fail()
        with log.handling(record.topic, record.partition, record.offset, record.key):
            await misbehaviour.delay()
            await asyncio.sleep(json.loads(record.value or b"0"))
        if context.partition_state is not None:
            context.partition_state.add(record.offset)

    await consumer.run()
    log.close()


def main() -> None:
    """Run the member that the first argument describes."""
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.INFO,
        format="%(asctime)s %(levelname)s %(name)s %(message)s",
    )
    misbehaviour = Misbehaviour()
    threading.Thread(target=misbehaviour.read, daemon=True).start()
    config = msgspec.json.decode(sys.argv[1], type=MemberConfig)
    asyncio.run(serve(config, misbehaviour))


if __name__ == "__main__":
    main()
