"""Records whose handler was chosen: nothing of them is remembered when they have ended.

``running`` checks that when it is left.
"""

from __future__ import annotations

from unit.handlers.scripted_runner import running
from unit.handlers.scripted_source import ORDERS, HeldWork, RecordState, record, turns, until

from asyncrevoke.client.model import Record  # noqa: TC001 - read when the predicate is checked
from asyncrevoke.handlers.policy.retry import Retry


def is_wanted(record: Record) -> bool:
    return record.value == b"v"


async def test_matched_records_are_forgotten_when_they_are_revoked_or_lost() -> None:
    work = HeldWork()
    async with running(work, where=is_wanted, unmatched="skip", retry=Retry(attempts=2)) as run:
        unwanted, first, behind = (
            record(0, b"b", value=b"x"),
            record(1, b"a"),
            record(2, b"a"),
        )
        run.source.feed(unwanted, first, behind)
        await until(lambda: work.running == [first])
        await until(lambda: run.source.state_of(unwanted) is RecordState.DONE)
        run.source.feed(revoke=[ORDERS])
        await turns()
        work.end()
        await until(lambda: not run.source.in_flight)
        assert run.source.state_of(first) is RecordState.DONE
        assert run.source.state_of(behind) is RecordState.DROPPED
        again = [record(2, b"a", tracker_id=2), record(3, b"c", tracker_id=2)]
        run.source.feed(*again)
        await until(lambda: len(work.running) == 2)
        run.source.feed(lost=[ORDERS])
        await until(lambda: not work.running)
        await run.stop()


async def test_the_handler_of_a_blocking_record_is_named() -> None:
    work = HeldWork()
    async with running(work, where=is_wanted) as run:
        run.source.feed(record(0, b"a"), record(1, b"b"))
        await until(lambda: len(work.running) == 2)
        (name, other) = (run.runner.name_of(ORDERS, offset) for offset in (1, 7))
        assert name == other
        assert name is not None
        assert name.endswith("handle")
        assert {call.handler for call in run.runner.running()} == {name}
        work.end()
        await run.stop()
