"""The task of one lifespan reports to its owner that the partition may be released."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, cast

from asyncrevoke import AssignedPartition, PartitionLostError, TopicPartition
from asyncrevoke.client.core.io.effects import EnterLifespan
from asyncrevoke.client.runtime.hooks.event_log import EventLog
from asyncrevoke.client.runtime.session.membership_guard import NoMembership
from asyncrevoke.handlers.lifespans.partition_lifespans import LifespanTask

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from asyncrevoke.client.runtime.session.session import Session
    from asyncrevoke.handlers.lifespans.partition_lifespans import PartitionLifespans


class Owner:
    """Writes down what is reported."""

    def __init__(self) -> None:
        self.reports: list[str] = []

    def lifespan_entered(self, lifespan: LifespanTask, state: object) -> None:
        self.reports.append("entered")

    def lifespan_exited(self, lifespan: LifespanTask) -> None:
        self.reports.append("exited")

    def lifespan_incomplete(self, lifespan: LifespanTask, error: PartitionLostError) -> None:
        self.reports.append("incomplete")

    def lifespan_failed(
        self, lifespan: LifespanTask, error: BaseException, *, entered: bool
    ) -> None:
        self.reports.append(f"failed {error} {entered}")

    def lifespan_over(self, lifespan: LifespanTask) -> None:
        self.reports.append("over")


@asynccontextmanager
async def slow(_: AssignedPartition[object]) -> AsyncGenerator[None]:
    await asyncio.sleep(60)
    yield


def begun(owner: Owner) -> LifespanTask:
    due = EnterLifespan(1, TopicPartition("orders", 0), 0)
    partition = AssignedPartition[object](due, None, cast("Session", None))
    log = EventLog().of_application()
    return LifespanTask(
        1,
        partition,
        slow,
        cast("PartitionLifespans", owner),
        log,
        membership=NoMembership(),
        enter_timeout=300,
        exit_timeout=60,
        before=None,
    )


async def test_a_task_that_is_cancelled_before_its_first_step_reports_its_exit() -> None:
    owner = Owner()
    lifespan = begun(owner)
    lifespan.exit()
    await lifespan.ended
    assert owner.reports == ["exited", "over"]


async def test_a_cancelled_entry_reports_its_exit_once() -> None:
    owner = Owner()
    lifespan = begun(owner)
    await asyncio.sleep(0)
    lifespan.exit()
    await lifespan.ended
    assert owner.reports == ["exited", "over"]


async def test_a_partition_that_is_lost_before_the_first_step_reports_no_exit() -> None:
    owner = Owner()
    lifespan = begun(owner)
    lifespan.lose()
    await lifespan.ended
    assert owner.reports == ["over"]
