"""Task groups on a scripted source, with work that the test ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from unit.handlers.scripted_runner import ScriptedClock
from unit.handlers.scripted_source import (
    HeldWork,
    LogLines,
    ScriptedSource,
)

from asyncrevoke.handlers.execution.runner_context import RunnerContext
from asyncrevoke.handlers.task_group import TrackedTaskGroup

if TYPE_CHECKING:
    import asyncio

    from asyncrevoke.client.config import OrderBy
    from asyncrevoke.client.model import Record
    from asyncrevoke.handlers.dead_letters.dead_letter import DeadLetter
    from asyncrevoke.handlers.dead_letters.producer import DeadLetterProducer
    from asyncrevoke.handlers.policy.registration import OnError
    from asyncrevoke.handlers.policy.retry import Retry


class SentDeadLetters:
    """A dead letter topic that may reject dead letters."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, DeadLetter]] = []
        self.rejects: Exception | None = None

    async def send(self, topic: str, letter: DeadLetter) -> None:
        if self.rejects is not None:
            raise self.rejects
        self.sent.append((topic, letter))


class Setting:
    """A source, a log, work that the test ends, and groups on them."""

    def __init__(self) -> None:
        self.source = ScriptedSource()
        self.log = LogLines()
        self.work = HeldWork()
        self.clock = ScriptedClock()
        self.letters = SentDeadLetters()

    def group(
        self,
        *,
        concurrency: int = 8,
        max_in_flight: int = 100,
        order_by: OrderBy | None = "key",
        on_error: OnError = "stop",
        retry: Retry | None = None,
        dead_letter: str | None = None,
    ) -> TrackedTaskGroup:
        context = RunnerContext(
            concurrency=concurrency,
            max_in_flight=max_in_flight,
            order_by=order_by,
            dead_letters=cast("DeadLetterProducer", self.letters),
            clock=cast("asyncio.AbstractEventLoop", self.clock),
            random=lambda: 0.5,
            log=self.log,
        )
        return TrackedTaskGroup(
            self.source, context, on_error=on_error, retry=retry, dead_letter=dead_letter
        )

    def delivered(self, *records: Record) -> list[Record]:
        self.source.deliver(self.source.batch(*records))
        return list(records)
