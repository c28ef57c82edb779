"""The first completion map is read back, and commits do not wait for that."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from unit.core.commit.test_completion_maps import MapGroup
from unit.core.scripted_brokers import tp

from asyncrevoke.client.core.io.effects import Channel
from asyncrevoke.client.protocol.messages import (
    ErrorCode,
    FetchedOffset,
    OffsetCommitRequest,
    OffsetFetchRequest,
    OffsetFetchResponse,
)

if TYPE_CHECKING:
    from asyncrevoke.client.model import Record

NOT_KEPT = "brokers do not keep commit metadata"


class ReadBackGroup(MapGroup):
    """A member of which the first completion map was acknowledged, and is read back."""

    records: list[Record]

    def answer(self, metadata: str) -> None:
        """The coordinator holds offset 0 with this."""
        asked, _ = self.only(OffsetFetchRequest)
        held = FetchedOffset(partition=tp(0), error=ErrorCode.none, offset=0, metadata=metadata)
        self.reply(asked, OffsetFetchResponse(error=ErrorCode.none, offsets=(held,)))


@pytest.fixture
def group() -> ReadBackGroup:
    group = ReadBackGroup(commit_mode="ack")
    group.become_member(0)
    group.pulse = ErrorCode.none
    group.silent.add(OffsetFetchRequest)
    group.produce(0, 10)
    group.records = group.take(10)
    group.finish(group.records, 5)
    group.advance(1)
    assert group.committed_map() == [(5, 6)]
    return group


def test_commits_do_not_wait_for_a_read_back_without_an_answer(group: ReadBackGroup) -> None:
    asked, _ = group.only(OffsetFetchRequest)
    group.finish(group.records, 7)
    group.advance(1)
    commit, _ = group.only(OffsetCommitRequest)
    # A broker handles the requests of one connection one after another.
    assert (asked.channel, commit.channel) == (Channel.READ_BACK, Channel.COMMIT)
    assert group.committed_map() == [(5, 6), (7, 8)]


def test_metadata_that_is_gone_is_noticed_unless_a_later_commit_may_be_held(
    group: ReadBackGroup,
) -> None:
    group.finish(group.records, 7)
    group.advance(1)
    group.respond_to_commit()
    group.answer("")
    assert not group.told(NOT_KEPT)
    group.finish(group.records, 9)
    group.advance(1)
    group.respond_to_commit()
    group.answer("")
    assert len(group.told(NOT_KEPT)) == 1


def test_metadata_that_is_there_is_not_asked_for_again(group: ReadBackGroup) -> None:
    group.answer("a later map")
    group.finish(group.records, 7)
    group.advance(1)
    group.respond_to_commit()
    assert not group.sends(OffsetFetchRequest)
    assert not group.told(NOT_KEPT)
