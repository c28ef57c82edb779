"""Failed records that another topic does not take: held, and written when it does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unit.handlers.scripted_runner import running
from unit.handlers.scripted_source import (
    ORDERS,
    OTHERS,
    HeldWork,
    RecordState,
    record,
    turns,
    until,
)

from asyncrevoke.client.errors import PublishError
from asyncrevoke.client.model import UnwrittenRecords
from asyncrevoke.handlers.policy.batch import BatchError
from asyncrevoke.handlers.policy.retry import Retry
from asyncrevoke.handlers.policy.retry_topic import RetryTopic

if TYPE_CHECKING:
    from unit.handlers.scripted_runner import RunningHandlers

    from asyncrevoke.client.model import Record
    from asyncrevoke.handlers.dead_letters.dead_letter import DeadLetter

MISSING = PublishError("dlq", "the topic does not exist")
TOO_LARGE = PublishError("dlq", "the record is larger than the topic allows", of_record=True)
BLOCKED = "records cannot be written to a topic; they are held until they can be"
REFUSED = "a topic refuses a failed record; the record is held until it is written"
WRITABLE = "records can be written to a topic again"


class Letters:
    """Topics that take records, or do not: ``errors`` by topic; ``refused`` values are rejected."""

    def __init__(self) -> None:
        self.errors: dict[str, Exception] = {}
        self.refused: dict[bytes, Exception] = {}
        self.tries = 0
        self.written: list[tuple[str, bytes | None]] = []
        self.attempts: list[bytes | None] = []

    async def send(self, topic: str, letter: DeadLetter) -> None:
        self.tries += 1
        error = self.errors.get(topic) or self.refused.get(letter.value or b"")
        if error is not None:
            raise error
        self.written.append((topic, letter.value))
        self.attempts.append(dict(letter.headers)["asyncrevoke-attempts"])


async def fail(value: bytes) -> None:
    if value.startswith(b"bad"):
        raise ValueError(value)


def done(run: RunningHandlers, *records: Record) -> bool:
    """Whether these records were delivered and are done."""
    states = run.source.states
    return all(states.get(run.source._name(each)) is RecordState.DONE for each in records)


def held(run: RunningHandlers) -> list[UnwrittenRecords]:
    return list(run.runner.unwritten())


async def test_a_missing_topic_holds_failed_records_and_everything_else_goes_on() -> None:
    letters = Letters()
    letters.errors["dlq"] = MISSING
    async with running(fail, dead_letter="dlq", dead_letters=letters, concurrency=2) as run:
        failing = [record(n, b"%d" % n, value=b"bad") for n in range(20)]
        behind = record(20, b"0", value=b"good")
        others = [record(n, b"%d" % n, partition=OTHERS, value=b"good") for n in range(20)]
        run.source.feed(*failing, behind, *others)
        await until(lambda: done(run, *others))
        assert {run.source.state_of(each) for each in failing} == {RecordState.PENDING}
        assert run.source.state_of(behind) is RecordState.PENDING, "its key waits"
        assert not run.source.paused
        assert held(run) == [
            UnwrittenRecords("dlq", "the topic does not exist", 20, 0.0, frozenset([ORDERS]))
        ]
        tries = letters.tries
        assert tries <= 3, "held records use no worker: one tries the topic"
        for _ in range(6):
            run.clock.advance(10)
            await turns()
        assert letters.tries <= tries + 12
        assert run.log.events("error") == [BLOCKED], "said once"
        del letters.errors["dlq"]
        run.clock.advance(10)
        await until(lambda: done(run, behind))
        assert {run.source.state_of(each) for each in failing} == {RecordState.DONE}
        assert len(letters.written) == 20
        assert run.log.fields(WRITABLE)["to_topic"] == "dlq"
        assert held(run) == []
        await run.stop()


async def test_the_pause_of_a_topic_lasts_10_s_at_most_after_it_can_be_written() -> None:
    letters = Letters()
    letters.errors["dlq"] = MISSING
    async with running(fail, dead_letter="dlq", dead_letters=letters) as run:
        failing = record(0, value=b"bad")
        run.source.feed(failing)
        await until(lambda: letters.tries == 1)
        for _ in range(100):
            run.clock.advance(10)
            await turns()
        del letters.errors["dlq"]
        run.clock.advance(10)
        await until(lambda: done(run, failing))
        assert letters.attempts == [b"1"]
        await run.stop()


async def test_a_refused_record_is_held_alone() -> None:
    letters = Letters()
    letters.refused[b"bad0"] = TOO_LARGE
    async with running(fail, dead_letter="dlq", dead_letters=letters) as run:
        large, small = record(0, b"a", value=b"bad0"), record(1, b"b", value=b"bad1")
        run.source.feed(large, small)
        await until(lambda: done(run, small))
        for _ in range(20):
            run.clock.advance(10)
            await turns()
        assert run.log.events("error") == [REFUSED]
        (only,) = held(run)
        assert (only.records, only.reason) == (1, "the record is larger than the topic allows")
        assert only.seconds == 200
        letters.refused.clear()
        run.clock.advance(60)
        await until(lambda: done(run, large))
        assert held(run) == []
        await run.stop()


async def test_topics_are_held_apart() -> None:
    letters = Letters()
    letters.errors["later"] = PublishError("later", "not authorized to write to it")
    retry_topic = RetryTopic("later", delay=60)
    async with running(
        fail,
        dead_letter="dlq",
        dead_letters=letters,
        retry=Retry(attempts=1, retry_on=ValueError),
        retry_topic=retry_topic,
    ) as run:
        failing, unreadable = record(0, b"a", value=b"bad"), record(1, b"b", value=None)
        run.source.feed(failing, unreadable)
        await until(lambda: done(run, unreadable))
        assert letters.written == [("dlq", None)]
        assert [each.to_topic for each in held(run)] == ["later"]
        letters.errors.clear()
        run.clock.advance(10)
        await until(lambda: done(run, failing))
        await run.stop()


async def test_a_revocation_does_not_wait_for_held_records_and_the_others_go_on() -> None:
    letters = Letters()
    letters.errors["dlq"] = MISSING
    async with running(fail, dead_letter="dlq", dead_letters=letters) as run:
        mine, other = record(0, value=b"bad"), record(0, partition=OTHERS, value=b"bad")
        run.source.feed(mine)
        await until(lambda: held(run))
        run.source.feed(other)
        await until(lambda: held(run)[0].records == 2)
        run.source.feed(revoke=[ORDERS])
        await until(lambda: run.source.state_of(mine) is RecordState.ABANDONED)
        assert [each.partitions for each in held(run)] == [frozenset([OTHERS])]
        letters.errors.clear()
        run.clock.advance(10)
        await turns()
        run.clock.advance(10)
        await until(lambda: done(run, other))
        await run.stop()


async def test_a_trial_ends_with_its_partition_and_another_record_tries_the_topic() -> None:
    letters = Letters()
    letters.errors["dlq"] = MISSING
    async with running(fail, dead_letter="dlq", dead_letters=letters) as run:
        mine, other = record(0, value=b"bad"), record(0, partition=OTHERS, value=b"bad")
        run.source.feed(mine, other)
        await until(lambda: held(run) and held(run)[0].records == 2)
        run.source.feed(lost=[ORDERS])
        await until(lambda: held(run)[0].partitions == frozenset([OTHERS]))
        letters.errors.clear()
        run.clock.advance(20)
        await until(lambda: done(run, other))
        await run.stop()


async def test_nothing_is_said_when_all_held_records_are_gone() -> None:
    letters = Letters()
    letters.errors["dlq"] = MISSING
    async with running(fail, dead_letter="dlq", dead_letters=letters) as run:
        run.source.feed(record(0, value=b"bad"))
        await until(lambda: held(run))
        run.source.feed(lost=[ORDERS])
        await until(lambda: not held(run))
        run.clock.advance(20)
        assert run.clock.timers == [], "nothing tries the topic any more"
        assert WRITABLE not in run.log.events("info")
        await run.stop()


async def test_stopping_does_not_wait_for_held_records() -> None:
    work, letters = HeldWork(), Letters()
    letters.errors["dlq"] = MISSING
    async with running(work, dead_letter="dlq", dead_letters=letters) as run:
        failing = record(0)
        run.source.feed(failing)
        await until(lambda: work.running)
        work.end(error=ValueError("boom"))
        await until(lambda: held(run))
        await run.stop()
        assert run.source.state_of(failing) is RecordState.ABANDONED
        assert run.clock.timers == []


async def test_each_failed_record_of_a_held_batch_counts() -> None:
    letters = Letters()
    letters.errors["dlq"] = MISSING

    async def store(_values: list[bytes]) -> None:
        raise BatchError({0: ValueError("bad"), 2: ValueError("bad")})

    async with running(
        store, batch=True, max_records=3, dead_letter="dlq", dead_letters=letters
    ) as run:
        run.source.feed(*(record(n, value=b"x") for n in range(3)))
        await until(lambda: held(run))
        assert held(run)[0].records == 2
        letters.errors["dlq"] = TOO_LARGE
        run.clock.advance(10)
        await until(lambda: held(run)[0].reason != "the topic does not exist")
        assert held(run)[0].records == 2
        letters.errors.clear()
        for _ in range(2):
            run.clock.advance(60)
            await turns()
        assert len(letters.written) == 2
        assert held(run) == []
        await run.stop()


async def test_a_batch_is_held_and_its_attempts_are_those_of_its_handler() -> None:
    letters = Letters()
    letters.errors["dlq"] = MISSING
    calls: list[list[bytes]] = []

    async def store(values: list[bytes]) -> None:
        calls.append(values)
        raise BatchError({0: ValueError("bad")})

    async with running(
        store, batch=True, max_records=2, dead_letter="dlq", dead_letters=letters
    ) as run:
        first, second = record(0, value=b"bad"), record(1, value=b"good")
        run.source.feed(first, second)
        await until(lambda: held(run))
        for _ in range(5):
            run.clock.advance(10)
            await turns()
        letters.errors.clear()
        run.clock.advance(10)
        await until(lambda: done(run, first))
        assert calls == [[b"bad", b"good"]]
        assert letters.attempts == [b"1"]
        assert run.log.events("error") == [BLOCKED]
        await run.stop()
