"""Members of several kinds in one group, where only a broker can say what happens."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest
from broker.records.numbered_records import NumberedMember, Numbers, until

from asyncrevoke import FencedInstanceError, InconsistentGroupError

if TYPE_CHECKING:
    from typing import Unpack

    from asyncrevoke import TopicPartition
    from asyncrevoke.broker import RunningBroker
    from asyncrevoke.client.config import ConsumerOptions

pytestmark = [
    pytest.mark.broker,
    pytest.mark.timeout(60),
    pytest.mark.kafka_topic(partitions=6),
]

PARTITIONS = 6
BOTH = ("range", "cooperative-sticky")


@pytest.fixture
def numbers(kafka_broker: RunningBroker, kafka_topic: str) -> Numbers:
    address = kafka_broker.bootstrap_servers
    return Numbers(address, address, kafka_topic, PARTITIONS)


class Delaying(NumberedMember):
    """A member that delays each revoke while ``delaying``."""

    delaying = True

    def __init__(self, numbers: Numbers, **options: Unpack[ConsumerOptions]) -> None:
        super().__init__(numbers.consumer(**options))
        self.delayed: set[TopicPartition] = set()

    async def _loop(self) -> None:
        async for batch in self.consumer:
            self.lost |= batch.lost
            self.handled.update((r.partition, r.offset) for r in batch.records)
            if self.delaying and batch.to_be_revoked:
                assert self.consumer.delay_revoke(batch.to_be_revoked)
                self.delayed |= batch.to_be_revoked


def has(member: NumberedMember, partitions: int) -> bool:
    return not member.failed and len(member.consumer.assignment()) == partitions


async def test_a_member_without_a_common_assignor_is_rejected_and_the_others_continue(
    numbers: Numbers,
) -> None:
    async with NumberedMember(numbers.consumer()) as member:
        await until(lambda: has(member, PARTITIONS), "all partitions")
        generation = member.consumer.group_metadata().generation
        with pytest.raises(
            InconsistentGroupError,
            match="uses the assignor 'cooperative-sticky', and this member offers range",
        ):
            async with numbers.consumer(assignors=("range",)) as newcomer:
                await anext(newcomer)
        await numbers.send(20)
        await member.has_all(numbers)
        assert member.consumer.group_metadata().generation == generation
        assert member.lost == set()


async def test_a_downgraded_member_returns_the_group_to_range(
    numbers: Numbers,
) -> None:
    async with NumberedMember(numbers.consumer(assignors=BOTH)) as stays, AsyncExitStack() as stack:
        leaves = await stack.enter_async_context(NumberedMember(numbers.consumer(assignors=BOTH)))
        await until(lambda: has(stays, 3) and has(leaves, 3), "a group of two")
        await numbers.send(40)
        await until(lambda: (stays.handled + leaves.handled).total() == 40, "40 records")
        await leaves.stop()
        async with NumberedMember(numbers.consumer(assignors=("range",))) as downgraded:
            await until(lambda: has(stays, 3) and has(downgraded, 3), "a group of two again")
            # As range deals them out: consecutive ones.
            mine = sorted(tp.partition for tp in downgraded.consumer.assignment())
            assert mine in ([0, 1, 2], [3, 4, 5])
            await numbers.send(40)
            everything = await numbers.written()
            await until(
                lambda: (stays.handled + leaves.handled + downgraded.handled) == everything,
                "each record once",
            )
    assert stays.lost == leaves.lost == downgraded.lost == set()
    assert await numbers.committed() == 80


async def test_a_static_member_restarts_during_delayed_revocations_and_no_partition_moves(
    numbers: Numbers,
) -> None:
    async with Delaying(numbers) as delays, AsyncExitStack() as stack:
        delays.delaying = False
        await until(lambda: has(delays, 6), "all partitions")
        static = await stack.enter_async_context(
            NumberedMember(numbers.consumer(group_instance_id="one"))
        )
        await until(lambda: has(delays, 3) and has(static, 3), "a group of two")
        delays.delaying = True
        third = await stack.enter_async_context(NumberedMember(numbers.consumer()))
        await until(lambda: bool(delays.delayed) and has(third, 1), "a delayed revoke")
        await until(lambda: has(static, 2), "the static member has released its own")
        held = static.consumer.assignment()
        assert len(delays.consumer.assignment()) == 3
        generation = third.consumer.group_metadata().generation
        await static.stop()

        again = await stack.enter_async_context(
            NumberedMember(numbers.consumer(group_instance_id="one"))
        )
        await until(lambda: has(again, len(held)), "the same share")
        assert again.consumer.assignment() == held
        metadata = again.consumer.group_metadata()
        assert (metadata.generation, third.consumer.group_metadata().generation) == (
            generation,
            generation,
        )
        delays.delaying = False
        await until(lambda: has(third, 2), "the delayed partition moves")
        await numbers.send(40)
        everything = await numbers.written()
        await until(
            lambda: delays.handled + third.handled + again.handled == everything,
            "each record once",
        )
        assert delays.lost == third.lost == again.lost == set()


async def test_a_static_member_is_fenced_when_its_instance_id_is_reused(numbers: Numbers) -> None:
    async with numbers.consumer(group_instance_id="one") as former:
        while len(former.assignment()) < PARTITIONS:
            await former.poll(timeout=0.1)
        async with NumberedMember(numbers.consumer(group_instance_id="one")) as successor:
            await until(lambda: has(successor, PARTITIONS), "all partitions")
            with pytest.raises(FencedInstanceError, match="give each member its own"):
                async for _ in former:
                    pass
            await numbers.send(20)
            await successor.has_all(numbers)


async def test_a_static_member_that_leaves_on_close_releases_partitions_immediately(
    numbers: Numbers,
) -> None:
    async with NumberedMember(numbers.consumer()) as stays:
        await until(lambda: has(stays, 6), "all partitions")
        static = numbers.consumer(group_instance_id="one", session_timeout=40.0)
        async with static:
            while len(static.assignment()) < 3:
                await static.poll(timeout=0.1)
            await static.aclose(leave=True)
        await until(lambda: has(stays, 6), "all partitions", within=10.0)


async def test_a_dynamic_member_that_stays_on_close_is_removed_after_session_timeout(
    numbers: Numbers,
) -> None:
    async with NumberedMember(numbers.consumer()) as waits:
        # Were it the first member, `goes` would have all, and would not poll to give some away.
        await until(lambda: has(waits, 6), "all partitions")
        goes = numbers.consumer(session_timeout=6.0)
        async with goes:
            while len(goes.assignment()) < 3:
                await goes.poll(timeout=0.1)
            await until(lambda: has(waits, 3), "three partitions each")
            await goes.aclose(leave=False)
        generation = waits.consumer.group_metadata().generation
        await until(lambda: has(waits, 6), "all partitions", within=20.0)
        assert waits.consumer.group_metadata().generation > generation
