"""Runs the demo: produces orders, follows the schedule, waits until all records are handled."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from aiokafka import TopicPartition as AioTopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError

from asyncrevoke.cli.demo.group import LEAVE_TIMEOUT, DemoGroup
from asyncrevoke.cli.demo.group_result import (
    Evidence,
    GroupResult,
    Produced,
    VisibleResults,
    evaluate,
)
from asyncrevoke.cli.demo.producer import produce
from asyncrevoke.cli.demo.visible_results import judge, read_results
from asyncrevoke.cli.demo.workload import Action, ScheduleStep, now
from asyncrevoke.client.errors import AsyncRevokeError
from asyncrevoke.client.model import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


REFRESH = 0.125
CATCH_UP_TIMEOUT = 30.0
# Longest time that a step, and the end, wait for a member that is starting.
START_TIMEOUT = 30.0


class DemoRun:
    """One run of the schedule with one group, or with two side by side.

    Args:
        groups: each with a separate topic; all topics get the same orders.
        steps: joins and leaves of the members of each group.
        rate: orders per second.
        show: called several times a second with the seconds since the start.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        groups: Sequence[DemoGroup],
        steps: Sequence[ScheduleStep],
        *,
        seconds: float,
        rate: float,
        show: Callable[[float], None],
    ) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._groups = {group.topic: group for group in groups}
        self._steps = steps
        self._seconds = seconds
        self._rate = rate
        self._show = show
        # Seconds that the offsets of a killed member may be pending in a transaction.
        self._pending_offsets = max(group.pending_offsets for group in groups)
        self.begin = 0.0

    async def run(self) -> None:
        """Run until all orders are handled, or a time limit, and all members have left. Raises
        MemberFailedError, and KafkaError if an order could not be produced."""
        self.begin = now()
        producing = asyncio.create_task(
            produce(
                self._bootstrap_servers,
                list(self._groups),
                rate=self._rate,
                seconds=self._seconds,
                acknowledged=self._acknowledged,
            )
        )
        try:
            for step in self._steps:
                await self._watch(partial(self._reached, step), producing)
                if step.action is Action.STOP:
                    await self._watch(
                        partial(self._can_leave, step.member), producing, START_TIMEOUT
                    )
                for group in self._groups.values():
                    committed: Mapping[TopicPartition, int] = {}
                    if step.action is Action.KILL:
                        committed = await self._committed(group)
                    await group.take(step, self.begin, committed)
            await self._watch(producing.done, producing)
            await self._watch(
                lambda: all(group.all_handled for group in self._groups.values()),
                producing,
                CATCH_UP_TIMEOUT + self._pending_offsets,
            )
            await self._watch(self._can_leave, producing, START_TIMEOUT)
            for group in self._groups.values():
                group.stop()
            await self._watch(
                lambda: all(group.all_gone for group in self._groups.values()),
                producing,
                LEAVE_TIMEOUT,
            )
        finally:
            producing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await producing
            for group in self._groups.values():
                await group.close()

    async def result(self, group: DemoGroup, concurrency: int) -> GroupResult:
        """Evaluate a group after the run."""
        evidence = Evidence(
            produced=group.produced,
            handled=group.handled,
            committed=await self._committed(group),
            concurrency=concurrency,
            died=group.died,
            killed=group.killed,
        )
        return replace(evaluate(evidence), results=await self._visible_results(group))

    async def _visible_results(self, group: DemoGroup) -> VisibleResults | None:
        """The visible results of a group after the run; None if it publishes none. Raises
        AsyncRevokeError if they cannot be read."""
        if group.results is None:
            return None
        try:
            results = await read_results(
                self._bootstrap_servers, group.results, group.partitions, len(group.produced)
            )
        except KafkaError as error:
            raise AsyncRevokeError(f"cannot read {group.results}: {error}") from error
        return judge(group.produced, results)

    async def _committed(self, group: DemoGroup) -> Mapping[TopicPartition, int]:
        partitions = sorted({record.partition for record in group.produced})
        return await committed_offsets(self._bootstrap_servers, group.name, partitions)

    def _reached(self, step: ScheduleStep) -> bool:
        return now() - self.begin >= step.at

    def _can_leave(self, *members: str) -> bool:
        """Whether these members, by default all, handle SIGTERM in each group."""
        return not any(group.is_starting(*members) for group in self._groups.values())

    def _acknowledged(self, topic: str, record: Produced) -> None:
        self._groups[topic].acknowledged(record)

    async def _watch(
        self,
        done: Callable[[], bool],
        producing: asyncio.Task[None],
        timeout: float = float("inf"),  # noqa: ASYNC109 - returns at the timeout
    ) -> None:
        deadline = now() + timeout
        while True:
            for group in self._groups.values():
                group.refresh()
            self._show(now() - self.begin)
            if done() or now() > deadline:
                return
            if producing.done():
                producing.result()  # raises the error of the producer
            await asyncio.sleep(REFRESH)


async def committed_offsets(
    bootstrap_servers: str, group: str, partitions: Sequence[TopicPartition]
) -> Mapping[TopicPartition, int]:
    """The committed offsets of a group, fetched by another client than the evaluated one. Raises
    AsyncRevokeError if the broker rejects the request."""
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap_servers)
    await admin.start()
    try:
        offsets = await admin.list_consumer_group_offsets(
            group, partitions=[AioTopicPartition(*partition) for partition in partitions]
        )
    except KafkaError as error:
        raise AsyncRevokeError(f"cannot read the committed offsets of {group}: {error}") from error
    finally:
        await admin.close()
    return {
        TopicPartition(partition.topic, partition.partition): offset.offset
        for partition, offset in offsets.items()
        if offset.offset >= 0
    }
