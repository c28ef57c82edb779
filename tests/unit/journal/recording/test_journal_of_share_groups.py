"""The journal of a share group: deliveries, calls, acknowledgements and lost locks."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, cast

import pytest
from typing_extensions import override
from unit.journal.journal_rows import attempts_of, rows_of
from unit.journal.recording.journalled_member import JournalledMember
from unit.journal.written_journal import record

from asyncrevoke import Consumer, Retry
from asyncrevoke.client.core.io.effects import (
    Channel,
    Emit,
    Failed,
    FailureKind,
    Node,
    Replied,
    Send,
)
from asyncrevoke.client.protocol.messages import ErrorCode
from asyncrevoke.client.protocol.share_messages import (
    AcknowledgementBatch,
    AcknowledgeType,
    ShareAcknowledgedPartition,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    SharePartition,
    TopicIdPartition,
)
from asyncrevoke.client.runtime.net.requests import ForwardedRequests
from asyncrevoke.journal import Journal
from asyncrevoke.journal.reading import read_journal
from asyncrevoke.journal.recording.acknowledgement_gate import AcknowledgementGate
from asyncrevoke.testing import TestConsumer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from asyncrevoke.client.core.share_core import ShareCore
    from asyncrevoke.client.runtime.net.requests import Requests


def acknowledgements(path: Path) -> list[tuple[str, int, int, str]]:
    """Kind, first and last offset, and outcome of each."""
    return [
        (row["kind"], row["offset"], row["last_offset"], row["outcome"])
        for row in rows_of(path, "ACCEPT", "RELEASE", "REJECT")
    ]


async def test_a_journal_has_deliveries_calls_and_acknowledgements(tmp_path: Path) -> None:
    consumer = Consumer(group_id="mails", group_type="share", journal=Journal(tmp_path))

    @consumer.handler("mails")
    async def send(_mail: dict[str, int]) -> None:
        await asyncio.sleep(1)

    async with TestConsumer(consumer, partitions=1) as t:
        await t.publish("mails", {"id": 1})
        await t.publish("mails", {"id": 2})
        await t.advance(3)
    assert attempts_of(tmp_path) == [(0, 0, 1, "ok"), (0, 1, 1, "ok")]
    acquired = [
        (r["offset"], r["last_offset"], r["records"]) for r in rows_of(tmp_path, "ACQUIRED")
    ]
    assert acquired == [(0, 0, 1), (1, 1, 1)]
    assert acknowledgements(tmp_path) == [("ACCEPT", 0, 1, "ok")]
    accepted = rows_of(tmp_path, "ACCEPT")[0]
    assert (accepted["topic"], accepted["group"]) == ("mails", "mails")
    assert len(accepted["member"]) == 22
    assert accepted["started_us"] <= accepted["at_us"]
    (state,) = read_journal(tmp_path).sessions
    assert state.ended
    assert state.gap is None
    assert state.facts["group_type"] == "share"


async def test_failures_are_released_rejected_or_dead_lettered(tmp_path: Path) -> None:
    consumer = Consumer(group_id="mails", group_type="share", journal=Journal(tmp_path))
    retry = Retry(attempts=2, backoff=1)

    @consumer.handler("released", release_delay=5)
    @consumer.handler("rejected", on_error="reject")
    @consumer.handler("letters", retry=retry, dead_letter="dlq")
    async def send(_mail: dict[str, int]) -> None:
        raise ValueError("no such address")

    async with TestConsumer(consumer, partitions=1) as t:
        for topic in ("released", "rejected", "letters"):
            await t.publish(topic, {"id": 1})
        await t.advance(7)
    calls = {(row["topic"], row["attempt"], row["outcome"]) for row in rows_of(tmp_path, "ATTEMPT")}
    assert calls == {
        ("released", 1, "released"),
        ("rejected", 1, "rejected"),
        ("letters", 1, "retried"),
        ("letters", 2, "dead_lettered"),
    }
    ended = [(r["kind"], r["topic"]) for r in rows_of(tmp_path, "REJECT", "RELEASE")]
    assert sorted(set(ended)) == [
        ("REJECT", "letters"),
        ("REJECT", "rejected"),
        ("RELEASE", "released"),
    ]
    deliveries = [r["records"] for r in rows_of(tmp_path, "ACQUIRED") if r["topic"] == "released"]
    assert deliveries == [1, 2]


async def test_lost_locks_have_rows_and_their_calls_are_cancelled(tmp_path: Path) -> None:
    consumer = Consumer(group_id="mails", group_type="share", journal=Journal(tmp_path))

    @consumer.handler("mails")
    async def send(_mail: dict[str, int]) -> None:
        await asyncio.sleep(10)

    async with TestConsumer(consumer, partitions=1) as t:
        await t.publish("mails", {"id": 1})
        await t.publish("mails", {"id": 2})
        await t.advance(0.1)
        await t.disconnect()
        await t.advance(12)
    lost = [(r["offset"], r["last_offset"]) for r in rows_of(tmp_path, "LOCK_LOST")]
    assert {offset for first, last in lost for offset in range(first, last + 1)} == {0, 1}
    reason = json.loads(rows_of(tmp_path, "LOCK_LOST")[0]["facts"])["reason"]
    assert "connection" in reason
    outcomes = sorted((offset, outcome) for _, offset, _, outcome in attempts_of(tmp_path))
    assert outcomes == [(0, "cancelled"), (0, "ok"), (1, "cancelled"), (1, "ok")]


async def test_a_retry_that_a_lost_lock_ends_is_forgotten(tmp_path: Path) -> None:
    member = JournalledMember(tmp_path)
    await member.begin()
    first, second = record(0), record(1)
    for each in (first, second):
        member.turn_began()
        member.called([each])
        member.recorder.failure_decided(each, "retried", ValueError("not yet"))
        member.turn_ended([])
    fields: dict[str, object] = {
        "topic": "orders",
        "partition": 0,
        "offsets": [(0, 0)],
        "reason": "the lock has passed",
    }
    member.recorder.core_reported(Emit("warning", "locks of acquired records are lost", fields))
    for each in (first, second):
        member.turn_began()
        member.called([each])
        member.turn_ended([each])
    await member.recorder.aclose()
    numbers = [(offset, number) for _, offset, number, _ in attempts_of(tmp_path)]
    assert numbers == [(0, 1), (1, 1), (0, 1), (1, 2)]


TOPIC_ID = bytes(16)
ORDERS = TopicIdPartition(TOPIC_ID, 0)


class _Cluster:
    """The topics that a share group's core knows."""

    delivery_limit = None

    @property
    def cluster(self) -> _Cluster:
        return self

    def names_by_id(self) -> dict[bytes, str]:
        return {TOPIC_ID: "orders"}


class _Broker(ForwardedRequests):
    """Answers each request as it is told."""

    def __init__(self, reply: Replied | Failed, sent: Callable[[], object]) -> None:
        super().__init__(cast("Requests", None))
        self.reply = reply
        self.sent = sent

    @override
    def begin(self, _send: Send, on_reply: Callable[[Replied | Failed], object], /) -> bool:
        self.sent()
        on_reply(self.reply)
        return True

    @override
    async def request(self, send: Send) -> Replied | Failed:
        del send
        self.sent()
        return self.reply


def gate_of(member: JournalledMember, broker: _Broker) -> AcknowledgementGate:
    """The gate of this member."""
    return AcknowledgementGate(broker, member.recorder, cast("ShareCore", _Cluster()))


def accepting(first: int, last: int, kind: AcknowledgeType = AcknowledgeType.ACCEPT) -> Send:
    """A request with one acknowledgement."""
    batch = AcknowledgementBatch(first_offset=first, last_offset=last, type=kind)
    request = ShareAcknowledgeRequest(
        group_id="billing",
        member_id="a",
        session_epoch=3,
        partitions=(SharePartition(partition=ORDERS, acknowledgements=(batch,)),),
    )
    return Send(7, request, Node(1, "localhost", 9092), Channel.SHARE, 5.0)


def answer(error: ErrorCode, of_partition: ErrorCode = ErrorCode.none) -> Replied:
    """What a broker says to it."""
    entry = ShareAcknowledgedPartition(partition=ORDERS, error=of_partition)
    return Replied(7, ShareAcknowledgeResponse(error=error, partitions=(entry,)))


CASES: list[tuple[Replied | Failed, list[tuple[str | None, str | None]]]] = [
    (answer(ErrorCode.none), [("ok", None)]),
    (answer(ErrorCode.none, ErrorCode.invalid_record_state), [("refused", "invalid_record_state")]),
    (Failed(7, FailureKind.DISCONNECTED), [("unknown", "unknown_server_error")]),
    (answer(ErrorCode.unknown_server_error), [("unknown", "unknown_server_error")]),
    # Not applied: sent again in a new session.
    (answer(ErrorCode.share_session_not_found), []),
    (Failed(7, FailureKind.UNREACHABLE), []),
]


@pytest.mark.parametrize(("reply", "expected"), CASES)
async def test_an_acknowledgement_has_the_outcome_of_its_response(
    tmp_path: Path,
    reply: Replied | Failed,
    expected: list[tuple[str | None, str | None]],
) -> None:
    member = JournalledMember(tmp_path)
    await member.begin()
    gate = gate_of(member, _Broker(reply, lambda: None))
    await gate.request(accepting(3, 5))
    await member.recorder.aclose()
    rows = rows_of(tmp_path, "ACCEPT")
    assert [(row["outcome"], row["error_type"]) for row in rows] == expected


async def test_an_acknowledgement_is_sent_after_the_rows_of_its_records_are_on_disk(
    tmp_path: Path,
) -> None:
    member = JournalledMember(tmp_path, wall_clock=None)
    await member.begin()
    seen: list[list[tuple[int, int, int | None, str]]] = []
    broker = _Broker(answer(ErrorCode.none), lambda: seen.append(attempts_of(tmp_path)))
    gate = gate_of(member, broker)
    first = record(0)
    member.turn_began()
    member.called([first])
    member.turn_ended([first])
    accept = accepting(0, 0)
    assert not gate.begin(accept, lambda _reply: None)
    await gate.request(accept)
    assert seen == [[(0, 0, 1, "ok")]]
    # A renewal or a release needs no row.
    assert gate.begin(accepting(1, 1, AcknowledgeType.RENEW), lambda _reply: None)
    assert gate.begin(accepting(1, 1, AcknowledgeType.RELEASE), lambda _reply: None)
    await member.recorder.aclose()
    assert acknowledgements(tmp_path) == [("ACCEPT", 0, 0, "ok"), ("RELEASE", 1, 1, "ok")]
