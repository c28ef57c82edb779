"""A member that uses this library."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from typing_extensions import override

from asyncrevoke import Consumer, RebalanceListener, Record, TopicPartition
from asyncrevoke.cli.demo.member.handler_log import HandlerLog, MemberConfig
from asyncrevoke.cli.demo.workload import Invoice, Order

if TYPE_CHECKING:
    from asyncrevoke.client.config import ConsumerOptions
    from asyncrevoke.journal import Journal

SAMPLE_INTERVAL = 0.1


class Ownership(RebalanceListener):
    """Logs the partitions that the member owns."""

    def __init__(self, log: HandlerLog) -> None:
        self._log = log

    @override
    def on_partitions_assigned(self, assigned: frozenset[TopicPartition]) -> None:
        self._log.assigned(partition for _, partition in assigned)

    @override
    def on_partitions_revoked(self, revoked: frozenset[TopicPartition]) -> None:
        self._log.released(partition for _, partition in revoked)


async def run(config: MemberConfig, log: HandlerLog) -> None:
    """Handle orders until SIGTERM."""
    consumer = Consumer(listener=Ownership(log), journal=_journal(config), **_options(config))

    @consumer.handler(config.topic, publish_to=config.results)
    async def bill(order: Order, record: Record) -> Invoice | None:
        with log.handling(record.topic, record.partition, record.offset, record.key):
            await asyncio.sleep(order.seconds)
        if config.results is None:
            return None
        return Invoice(record.partition, record.offset, order.customer)

    async def sample() -> None:
        while True:
            await asyncio.sleep(SAMPLE_INTERVAL)
            log.draining(consumer.health().revoking)

    sampling = asyncio.create_task(sample())
    try:
        await consumer.run()
    finally:
        sampling.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await sampling


def _options(config: MemberConfig) -> ConsumerOptions:
    options: ConsumerOptions = {
        "bootstrap_servers": config.bootstrap_servers,
        "group_id": config.group,
        "client_id": config.name,
        "concurrency": config.concurrency,
        "order_by": "key",
        "max_in_flight": config.max_in_flight,
        "heartbeat_interval": config.heartbeat_interval,
    }
    if config.results is None:
        options["commit_interval"] = config.commit_interval
    else:
        options["processing"] = "exactly_once"
        options["transaction_timeout"] = config.transaction_timeout
    if config.protocol == "consumer":
        options["group_protocol"] = "consumer"  # the broker sets the session timeout
    else:
        options["session_timeout"] = config.session_timeout
        options["assignors"] = ("range" if config.protocol == "eager" else "cooperative-sticky",)
    return options


def _journal(config: MemberConfig) -> Journal | None:
    if config.journal is None:
        return None
    from asyncrevoke.journal import Journal as Folder

    return Folder(config.journal, strict=config.strict)
