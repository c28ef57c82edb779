"""Times of calls in iterations of the event loop that took long."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest_asyncio
from unit.journal.journal_rows import rows_of
from unit.journal.recording.journalled_member import JournalledMember
from unit.journal.written_journal import record

if TYPE_CHECKING:
    from pathlib import Path

BEGIN = 1_700_000_000.0


class Member:
    """A member whose clock the test moves."""

    def __init__(self, folder: Path) -> None:
        self.now = BEGIN
        self._folder = folder
        self._records = [record(offset) for offset in range(3)]
        self._member = JournalledMember(folder, strict=False, wall_clock=lambda: self.now)

    async def begin(self) -> None:
        await self._member.begin()

    def turn(self, *, ended: tuple[int, ...], started: tuple[int, ...], seconds: float) -> None:
        """An iteration in which these calls end, then those start, and then time passes."""
        self.now += 1
        self._member.turn_began()
        self._member.called([self._records[offset] for offset in started])
        self.now += seconds
        self._member.turn_ended([self._records[offset] for offset in ended])

    async def times(self) -> list[tuple[int, float, float]]:
        """Offset, begin and end of each call."""
        await self._member.recorder.aclose()
        return [
            (row["offset"], seconds(row["started_us"]), seconds(row["at_us"]))
            for row in rows_of(self._folder, "ATTEMPT")
        ]


def seconds(microseconds: int) -> float:
    return round(microseconds / 1e6 - BEGIN, 3)


@pytest_asyncio.fixture
async def member(tmp_path: Path) -> Member:
    made = Member(tmp_path)
    await made.begin()
    return made


async def test_calls_of_a_process_that_is_frozen_began_before_the_freeze(member: Member) -> None:
    member.turn(ended=(), started=(0, 1), seconds=30)
    member.turn(ended=(0, 1), started=(), seconds=0)
    assert await member.times() == [(0, 1, 32), (1, 1, 32)]


async def test_of_calls_that_end_in_a_long_iteration_the_last_one_took_the_time(
    member: Member,
) -> None:
    member.turn(ended=(0, 1, 2), started=(0, 1, 2), seconds=30)
    assert await member.times() == [(0, 1, 1), (1, 1, 1), (2, 1, 31)]


async def test_a_call_ends_before_those_that_waited_for_it_begin(member: Member) -> None:
    member.turn(ended=(), started=(0,), seconds=0)
    member.turn(ended=(0,), started=(1,), seconds=30)
    member.turn(ended=(1,), started=(), seconds=0)
    assert await member.times() == [(0, 1, 2), (1, 2, 33)]


async def test_calls_of_an_iteration_of_milliseconds_have_the_time_of_its_end(
    member: Member,
) -> None:
    member.turn(ended=(), started=(0,), seconds=0.016)
    member.turn(ended=(0,), started=(), seconds=0.016)
    assert await member.times() == [(0, 1.016, 2.032)]
