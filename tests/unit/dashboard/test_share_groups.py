"""A share group on the page: what its members have acquired, and what brokers tell of it."""

from __future__ import annotations

import asyncio

from unit.dashboard.table_rows import table_rows

from asyncrevoke import Consumer, ConsumerConfig, TopicPartition
from asyncrevoke.client.groups.facts import MemberFacts, ShareGroupFacts, SharePartitionFacts
from asyncrevoke.testing import TestConsumer
from asyncrevoke.web.dashboard.consumer_watch import ConsumerWatch
from asyncrevoke.web.dashboard.group_watch import GroupWatch
from asyncrevoke.web.dashboard.history import History
from asyncrevoke.web.dashboard.page import parts


async def test_a_member_shows_what_it_has_acquired_and_acknowledged() -> None:
    history = History("mails", clock=lambda: asyncio.get_running_loop().time())
    consumer = Consumer(group_id="mails", group_type="share", concurrency=2)
    consumer.observe(ConsumerWatch(history))

    @consumer.handler("mails", release_delay=20)
    async def send(number: int) -> None:
        if number == 0:
            raise ValueError("no such address")
        await asyncio.sleep(5 * number)

    async with TestConsumer(consumer, partitions=1) as t:
        for number in range(4):
            await t.publish("mails", number)
        await t.advance(8)
        shown = parts(history, 0)
        (heading, (member, *figures)) = table_rows(shown["acquired"])
        assert heading[:5] == [
            "member",
            "wait for a call",
            "running",
            "wait for a retry or release",
            "oldest",
        ]
        assert (member, figures[:3]) == ("asyncrevoke", ["0", "2", "1"])
        assert figures[3].startswith("mails-0 at 0, ")
        # Deliveries of the oldest, on the last delivery, locks lost; accepted, rejected, released.
        assert figures[4:] == ["1", "0", "0", "1", "0", "0"]
        await t.disconnect()
        await t.advance(20)
        shown = parts(history, 0)
        assert "locks of records lost: the broker has refused" in shown["notes"]
        assert int(table_rows(shown["acquired"])[1][7]) >= 2
        assert "No partition of a share group is revoked." in shown["revocations"]
    assert parts(history, 0)["acquired"].strip() == ""


def test_brokers_tell_how_many_members_share_a_partition() -> None:
    history = History("mails")
    watch = GroupWatch(ConsumerConfig(), "mails", history)
    members = tuple(
        MemberFacts(member_id=name, client_id=name, host="10.0.0.1") for name in ("a", "b", "c")
    )
    watch.look_at_share_group(
        ShareGroupFacts(
            group="mails",
            type="share",
            state="Stable",
            assignor="simple",
            coordinator="kafka-1:9092",
            epoch=3,
            members=members,
            partitions=(
                SharePartitionFacts(
                    topic="mails", partition=0, start=10, lag=5, member_ids=("a", "c")
                ),
                SharePartitionFacts(topic="mails", partition=1, start=7, lag=9, member_ids=("b",)),
                SharePartitionFacts(topic="mails", partition=2),
            ),
        )
    )
    shown = parts(history, 0)
    assert table_rows(shown["places"]) == [
        ["partition", "owner", "lag", "start offset"],
        ["mails-1", "1 member", "9", "7"],
        ["mails-0", "2 members", "5", "10"],
        ["mails-2", "nobody", "", ""],
    ]
    assert history.lane(TopicPartition("mails", 0))[-1].owner == "2 members"
    assert "<dt>members</dt><dd>3</dd>" in shown["figures"]
    assert "<dt>lag</dt><dd>14</dd>" in shown["figures"]
    assert "Stable" in shown["notes"]
