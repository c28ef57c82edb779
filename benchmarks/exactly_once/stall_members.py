"""Members that publish exactly once, and have work left when partitions are revoked.

The value of a result is the name of the member, the partition of the record, and the monotonic
clock when its handler began, in ns. Members run until their process is killed.
"""

from __future__ import annotations

import asyncio
import time
import traceback
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from asyncrevoke.client.config import GroupProtocol
    from benchmarks.workload.stall_member import Pipe

HANDLER_TIME = 0.02  # seconds


class StallTask(NamedTuple):
    """What a member is told; times are seconds. ``drain``: what the work that is left of revoked
    partitions takes."""

    bootstrap: str
    topic: str
    results: str
    group: str
    member: str
    interval: float
    drain: float


class StallClient(Protocol):
    """Publishes until it is cancelled or killed."""

    async def __call__(self, task: StallTask) -> None:
        """Runs a member."""
        ...


async def asyncrevoke_classic(task: StallTask) -> None:
    """Tasks of 20 ms, in a classic group with the cooperative-sticky assignor."""
    await _asyncrevoke(task, "classic")


async def asyncrevoke_kip848(task: StallTask) -> None:
    """The same in a group whose coordinator assigns."""
    await _asyncrevoke(task, "consumer")


async def _asyncrevoke(task: StallTask, protocol: GroupProtocol) -> None:
    from asyncrevoke import Consumer, Record

    asked: dict[int, float] = {}
    async with (
        Consumer(
            task.topic,
            bootstrap_servers=task.bootstrap,
            group_id=task.group,
            group_protocol=protocol,
            processing="exactly_once",
            transaction_interval=task.interval,
            concurrency=256,
        ) as consumer,
        consumer.task_group(order_by=None) as tasks,
    ):

        async def handle(record: Record) -> None:
            began = time.monotonic()
            await asyncio.sleep(HANDLER_TIME)
            if began < (at := asked.get(record.partition, 0.0)):
                await asyncio.sleep(at + task.drain - time.monotonic())
            value = b"%s %d %d" % (task.member.encode(), record.partition, began * 1e9)
            await tasks.publish(record, task.results, value)

        async for batch in consumer:
            for partition in batch.to_be_revoked:
                asked.setdefault(partition.partition, time.monotonic())
            for record in batch.records:
                await tasks.submit(handle, record)


async def java_classic(task: StallTask) -> None:
    """The Java client in one loop, cooperative-sticky: the listener waits, then commits."""
    await _java(task, "classic")


async def java_kip848(task: StallTask) -> None:
    """The same in a group whose coordinator assigns."""
    await _java(task, "consumer")


async def _java(task: StallTask, protocol: str) -> None:
    from benchmarks.clients.java_clients import kafka_class_path, run

    await run(
        "DrainAndPublish.java",
        kafka_class_path(),
        task.bootstrap,
        task.topic,
        task.results,
        task.group,
        task.member,
        protocol,
        int(task.interval * 1000),
        int(task.drain * 1000),
    )


CLIENTS: dict[str, StallClient] = {
    "asyncrevoke cooperative-sticky": asyncrevoke_classic,
    "asyncrevoke KIP-848": asyncrevoke_kip848,
    "Java client cooperative-sticky": java_classic,
    "Java client KIP-848": java_kip848,
}


def run_member(client: str, task: StallTask, pipe: Pipe) -> None:
    """Run a member; blocks. Sends a traceback if it fails."""
    try:
        asyncio.run(_run(client, task))
    except Exception:  # noqa: BLE001 - it is told in the other process
        pipe.send(traceback.format_exc())


async def _run(client: str, task: StallTask) -> None:
    await CLIENTS[client](task)
    raise RuntimeError("the member has ended")
