"""The invariants S1 to S12 of share groups, checked at each event of a run.

What a member believes is compared with what the brokers know. A record is followed by the number of
the response that has acquired it, which is its timestamp.
"""

from __future__ import annotations

from collections import Counter, deque
from functools import partial
from typing import TYPE_CHECKING

from simulation.cluster.network import Connection
from simulation.invariants.oracle_state import Violation
from simulation.share.invariants.followed_records import follow
from simulation.share.invariants.trace_lines import Passed
from simulation.share.invariants.views import (
    HeldView,
    MemberView,
    Offset,
    has_record,
    offset_name,
)

from asyncrevoke.client.core.io.effects import Effect, Failed, Replied, Send
from asyncrevoke.client.core.share.state_table import RecordState
from asyncrevoke.client.protocol.messages import LEAVE_EPOCH, ErrorCode
from asyncrevoke.client.protocol.share_messages import (
    OPEN_SESSION,
    AcknowledgeType,
    ShareAcknowledgeRequest,
    ShareFetchRequest,
    ShareFetchResponse,
    ShareGroupHeartbeatRequest,
    TopicIdPartition,
)
from asyncrevoke.testing.fake_kafka.share_partition import LockEnd, OffsetState

if TYPE_CHECKING:
    import hashlib
    from collections.abc import Sequence

    from simulation.share.brokers.share_brokers import ShareBrokers
    from simulation.share.members.share_member import SimulatedShareMember

    from asyncrevoke.client.core.io.deadline import Deadline
    from asyncrevoke.client.core.io.effects import Node
    from asyncrevoke.client.core.share.acquired_records import AcquiredRecord as Acquired
    from asyncrevoke.client.core.share.acquisition import Acquisition, HeldRecord
    from asyncrevoke.testing.fake_kafka.clock import Clock
    from asyncrevoke.testing.fake_kafka.share_partition import ShareOffset, SharePartition

_FINAL = (RecordState.DONE, RecordState.LOST, RecordState.UNKNOWN)
_LOCKED = (RecordState.HELD, RecordState.RUNNING, RecordState.WAITING)
_ENDING = {
    AcknowledgeType.ACCEPT: RecordState.ACCEPTING,
    AcknowledgeType.REJECT: RecordState.REJECTING,
    AcknowledgeType.RELEASE: RecordState.RELEASING,
}
# Requests of one member in a second, after which it waits for nothing.
_MOST_REQUESTS = 1500
# Why a member may give up a record whose lock it still has.
_EXCUSED = ("the lock has passed", "the connection", "the leader", "the broker responds", "was")


class ShareOracle:
    """Follows the brokers and all members. ``strict``: no lock may be lost, and no record is
    delivered to two calls at a time."""

    def __init__(self, clock: Clock, brokers: ShareBrokers, *, strict: bool) -> None:
        self.strict = strict
        self.renews = True
        self.counts: Counter[str] = Counter()
        self.trace: deque[tuple[float, int, object]] = deque(maxlen=400)
        self.views: dict[int, MemberView] = {}
        # Of all effects, if it is asked for (S12).
        self.digest: hashlib._Hash | None = None
        self._clock = clock
        self._brokers = brokers
        self._clients: dict[str, int] = {}
        self._ended: dict[tuple[Offset, int], tuple[LockEnd, AcknowledgeType | None]] = {}
        # The acquisition that each acknowledgement was last sent for.
        self._sent: dict[tuple[int, Offset, AcknowledgeType], int] = {}
        # The acquisitions that an acknowledgement of a former one has ended: the member goes on.
        self._ended_late: set[tuple[Offset, int]] = set()
        # The acquisitions of which a member knows.
        self._known: set[tuple[Offset, int]] = set()
        # What the group has taken: by whom, and as what.
        self.taken: dict[Offset, AcknowledgeType] = {}
        self.releases: Counter[Offset] = Counter()
        # Where the log of a partition ended when its first fetch was processed.
        self.begins: dict[TopicIdPartition, int] = {}
        brokers.created = self._created
        brokers.processed = self._processed

    def note(self, client: int, what: object) -> None:
        """Keep a line for the trace of a failure."""
        self.trace.append((self._clock.now, client, what))

    def disturb(self, client: int | None, seconds: float) -> None:
        """Something befalls a member, or all: for so long its locks may pass."""
        until = self._clock.now + seconds
        for view in self.views.values():
            if client is None or view.member.client == client:
                view.disturbed_until = max(view.disturbed_until, until)

    def _is_calm(self, view: MemberView) -> bool:
        return self._clock.now > view.disturbed_until and view.member.alive

    # --- brokers ---------------------------------------------------------------------------------

    def _created(self, partition: TopicIdPartition, state: SharePartition) -> None:
        state.lock_ended = partial(self._lock_ended, partition)

    def _processed(self, broker: int, message: object) -> None:
        """The first fetch of a partition that a broker serves sets the group's start offset. A
        request that it rejects sets none."""
        if isinstance(message, ShareFetchRequest) and not self._brokers.options.from_earliest:
            session = self._brokers.leaders[broker].sessions.get(message.member_id)
            for partition in () if session is None else session.partitions:
                state = self._brokers.find(partition)
                if state is not None and self._brokers.serves(broker, partition):
                    self.begins.setdefault(partition, state.log.end)

    def _lock_ended(
        self,
        partition: TopicIdPartition,
        offset: int,
        lock: ShareOffset,
        why: LockEnd,
        kind: AcknowledgeType | None,
    ) -> None:
        where = partition, offset
        client = self._clients[lock.member]
        view = self.views[client]
        held = view.held.get(where)
        self._ended[where, lock.acquisition] = why, kind
        is_held = held is not None and held.acquisition == lock.acquisition
        if why is LockEnd.EXPIRED:
            self.counts["locks expired"] += 1
            if self.renews and is_held and held and held.state in _LOCKED and self._is_calm(view):
                raise Violation(
                    "S3", f"the lock of {offset_name(where)} of client {client} has passed"
                )
            if self.strict:
                raise Violation("S3", f"a lock of {offset_name(where)} passes in a calm group")
        if why is LockEnd.ACKNOWLEDGED:
            assert kind is not None
            self.counts[kind.name.lower()] += 1
            if kind is AcknowledgeType.GAP:
                self.taken[where] = kind
                return
            if self._brokers.is_late:
                # Of a session that has ended: the broker knows it by its epoch alone, and another
                # session of the member may have the same one.
                self.counts["acknowledged late"] += 1
                self._ended_late.add((where, lock.acquisition))
            elif (sent := self._sent.get((client, where, kind))) != lock.acquisition:
                if sent is None or (where, lock.acquisition) in self._known:
                    raise Violation(
                        "S2",
                        f"{kind.name} of client {client} ends another acquisition of "
                        f"{offset_name(where)}",
                    )
                # The lock was taken away without a word, and the record acquired again for the
                # same member, with a response that it has not got, or could not read.
                self.counts["acknowledged unknown"] += 1
                self._ended[where, sent] = why, kind
            if kind is AcknowledgeType.RELEASE:
                self.releases[where] += 1
            else:
                self.taken[where] = kind
        elif self.strict:
            raise Violation("S10", f"the lock of {offset_name(where)} ends: {why.value}")

    # --- members ---------------------------------------------------------------------------------

    def admit(self, member: SimulatedShareMember) -> None:
        """Follow a new member."""
        view = self.views[member.client] = MemberView(member)
        self._clients[member.member_id] = member.client

        def added(acquisition: Acquisition, records: Sequence[Acquired]) -> None:
            for record in records:
                where = acquisition.partition, record.offset
                view.held[where] = HeldView(
                    record.timestamp, acquisition.node, acquisition.records[record.offset]
                )
                self._acquired(member, where, record)

        def loses(why: str) -> None:
            view.why = why

        follow(member.core.held, added, partial(self._changed, view), loses)

    def _acquired(self, member: SimulatedShareMember, where: Offset, record: Acquired) -> None:
        self._known.add((where, record.timestamp))
        state = self._brokers.shares.get(where[0])
        ended = (where, record.timestamp) in self._ended
        lock = None if state is None else state.offsets.get(where[1])
        if state is not None and not ended:
            if lock is None or lock.acquisition != record.timestamp:
                raise Violation(
                    "S5", f"{offset_name(where)} was not acquired by client {member.client}"
                )
            if not has_record(state, where[1]):
                raise Violation("S5", f"there is no record at {offset_name(where)}")

    def _changed(self, view: MemberView, record: HeldRecord) -> None:
        where = record.acquisition.partition, record.offset
        held = view.held.get(where)
        if held is None or held.record is not record:
            return  # the next acquisition has taken its place
        held.state = record.state
        if record.state is RecordState.RELEASING and held.asked is None and view.close is not None:
            held.asked = AcknowledgeType.RELEASE
        if record.state not in _FINAL:
            return
        del view.held[where]
        self.counts[record.state.value] += 1
        ended = self._ended.get((where, held.acquisition))
        if record.state is RecordState.DONE:
            if self._is_over(where, ended) or (where, held.acquisition) in self._ended_late:
                self.counts["acknowledged below the start"] += 1
            elif (
                ended is None or ended[0] is not LockEnd.ACKNOWLEDGED or ended[1] is not held.asked
            ):
                raise Violation("S2", f"{offset_name(where)} counts as {held.asked}, but {ended}")
        elif record.state is RecordState.LOST:
            self.note(view.member.client, f"loses {offset_name(where)}: {view.why}")
            if ended is None and where[0] in self._brokers.shares:
                self._lost_with_lock(view, where, held)

    def _is_over(self, where: Offset, ended: tuple[LockEnd, AcknowledgeType | None] | None) -> bool:
        """Whether another member has ended this record after its lock was lost: then the broker
        takes any acknowledgement without a word."""
        state = self._brokers.shares.get(where[0])
        was_lost = ended is not None and ended[0] is not LockEnd.ACKNOWLEDGED
        return was_lost and state is not None and where[1] < (state.start or 0)

    def _lost_with_lock(self, view: MemberView, where: Offset, held: HeldView) -> None:
        """The member drops a record that is still locked for it."""
        client = view.member.client
        if view.why.startswith("the broker has refused"):
            raise Violation("S9", f"client {client} gives up {offset_name(where)}, which it has")
        if view.why == "the lock has passed" and self.renews and self._is_calm(view):
            raise Violation(
                "S3", f"client {client} does not renew the lock of {offset_name(where)}"
            )
        if self.strict or not view.why.startswith(_EXCUSED):
            raise Violation(
                "S4", f"client {client} drops {offset_name(where)}, which it has, as {view.why!r}"
            )
        if view.why == "the lock has passed" and view.member.now < held.record.deadline:
            raise Violation("S4", f"client {client} drops {offset_name(where)} before its deadline")

    def effect(self, member: SimulatedShareMember, effect: Effect) -> None:
        """A core has asked for this."""
        if not isinstance(effect, Send):
            self._hash(member, effect)
            return
        view, message = self.views[member.client], effect.message
        self.note(member.client, Passed("->", effect.node.node_id, message))
        self._hash(member, effect)
        now = self._clock.now
        view.sent.append(now)
        while view.sent[0] < now - 1.0:
            view.sent.popleft()
        if len(view.sent) > _MOST_REQUESTS:
            raise Violation("busy", f"client {member.client} sends {len(view.sent)} requests/s")
        if isinstance(message, ShareGroupHeartbeatRequest):
            if message.member_epoch == LEAVE_EPOCH:
                self._leaves(view)
        elif isinstance(message, (ShareFetchRequest, ShareAcknowledgeRequest)):
            self._check_session(view, effect.node, message)
            view.outstanding[effect.node] = effect
            for entry in message.partitions:
                for batch in entry.acknowledgements:
                    for offset in range(batch.first_offset, batch.last_offset + 1):
                        where = entry.partition, offset
                        self._check_sent(view, effect.node, where, batch.type)
            if isinstance(message, ShareFetchRequest):
                self._check_fetch(view, message)

    def _hash(self, member: SimulatedShareMember, effect: Effect) -> None:
        if self.digest is None:
            return
        name = type(effect).__name__
        self.digest.update(f"{self._clock.now:.9f} {member.client} {name} {effect}".encode())

    def _check_session(
        self, view: MemberView, node: Node, message: ShareFetchRequest | ShareAcknowledgeRequest
    ) -> None:
        client = view.member.client
        if node in view.outstanding:
            raise Violation("S6", f"client {client} has two requests at broker {node.node_id}")
        if message.session_epoch == OPEN_SESSION:
            view.must_open.pop(node, None)
            self.counts["sessions opened"] += 1
        elif node in view.must_open:
            raise Violation("S6", f"client {client} goes on with an epoch that has advanced")

    def _check_sent(
        self, view: MemberView, node: Node, where: Offset, kind: AcknowledgeType
    ) -> None:
        client, held = view.member.client, view.held.get(where)
        if kind is AcknowledgeType.GAP:
            state = self._brokers.find(where[0])
            if state is not None and has_record(state, where[1]):
                raise Violation(
                    "S5", f"client {client} calls the record at {offset_name(where)} a gap"
                )
            return
        if held is None:
            raise Violation(
                "S4", f"client {client} sends {kind.name} of {offset_name(where)}, now lost"
            )
        if held.node != node:
            raise Violation("S2", f"{kind.name} of {offset_name(where)} goes to another leader")
        if kind is AcknowledgeType.RENEW:
            return
        self._sent[client, where, kind] = held.acquisition
        if held.state is not _ENDING[kind] or held.asked is not kind:
            invariant = {AcknowledgeType.ACCEPT: "S1", AcknowledgeType.REJECT: "S8"}.get(kind, "S7")
            raise Violation(
                invariant,
                f"client {client} sends {kind.name} of {offset_name(where)}, which is "
                f"{held.state.value}, and {held.asked} was asked for",
            )
        if view.member.now < held.asked_at and view.close is None:
            raise Violation("S7", f"client {client} releases {offset_name(where)} before its delay")

    def _check_fetch(self, view: MemberView, message: ShareFetchRequest) -> None:
        member = view.member
        for gone in message.forgotten:
            if any(where[0] == gone for where in view.held) and not view.is_delayed(gone):
                raise Violation("S3", f"client {member.client} forgets a partition that it holds")
        core = member.core
        slots, most = core.limits.slots, core.limits.max_in_flight
        reserved = sum(session.reserved for session in core._sessions.values())
        if not message.exact:
            return
        if message.session_epoch == OPEN_SESSION:
            return  # one record at least, which sets the start offset
        if core.limits.in_slots(core.held) + reserved > slots + len(core._sessions):
            raise Violation(
                "S7",
                f"client {member.client} has {core.held.in_slots} records and fetches "
                f"{reserved} for {slots} slots",
            )
        unfinished = sum(held.state in _LOCKED for held in view.held.values())
        if unfinished + reserved > most + len(core._sessions):
            raise Violation(
                "S7", f"client {member.client} has {unfinished} and fetches {reserved}: {most}"
            )

    def _leaves(self, view: MemberView) -> None:
        """Sessions are closed before the group is left, because leaving releases nothing."""
        member = view.member
        if not self._is_calm(view) or view.close is None or member.now >= view.close.commits:
            return
        for leader in self._brokers.leaders:
            session = leader.sessions.get(member.member_id)
            if session is None or not self._serves(leader.broker):
                continue
            if any(node.node_id == leader.broker for node in view.must_open):
                continue  # as the member knows, it has ended
            connection = session.connection
            # A broker notices the end of such a connection never, or much later.
            if not (isinstance(connection, Connection) and connection.black_hole):
                raise Violation(
                    "S7", f"client {member.client} leaves before its session at {leader.broker}"
                )

    def _serves(self, broker: int) -> bool:
        return self._brokers.stalled_until(broker) <= self._clock.now

    def received(self, member: SimulatedShareMember, event: Replied | Failed) -> None:
        """A core is about to handle a response."""
        view = self.views[member.client]
        for node, send in list(view.outstanding.items()):
            if send.request_id == event.request_id:
                del view.outstanding[node]
                response = event.message if isinstance(event, Replied) else event.kind
                self.note(member.client, Passed("<-", node.node_id, response))
                if (
                    isinstance(response, ShareFetchResponse)
                    and response.error is ErrorCode.unknown_server_error
                ):
                    view.must_open[node] = None
                if isinstance(event, Failed):
                    view.must_open[node] = None

    def handled(self, member: SimulatedShareMember) -> None:
        """A call into a core has ended, and all its effects were seen."""

    # --- applications ----------------------------------------------------------------------------

    def started(self, member: SimulatedShareMember, record: Acquired) -> None:
        """A handler is called."""
        view = self.views[member.client]
        where, held = view.find(record)
        if held is None or held.state is not RecordState.RUNNING:
            raise Violation("S2", f"client {member.client} starts {offset_name(where)}, now lost")
        ended = self._ended.get((where, held.acquisition))
        if ended is not None and ended[0] is LockEnd.EXPIRED:
            raise Violation(
                "S2", f"client {member.client} starts {offset_name(where)}, whose lock passed"
            )
        view.running[where] = held.acquisition
        self.counts["calls"] += 1
        if self.strict and sum(where in other.running for other in self.views.values()) > 1:
            raise Violation("S10", f"two handlers run for {offset_name(where)}")

    def ended(self, member: SimulatedShareMember, record: Acquired) -> None:
        """A handler has returned, or was cancelled."""
        view = self.views[member.client]
        for where, acquisition in list(view.running.items()):
            if where[1] == record.offset and acquisition == record.timestamp:
                del view.running[where]

    def asked(
        self, member: SimulatedShareMember, record: Acquired, what: str, after: float
    ) -> None:
        """The application is about to acknowledge a record."""
        _, held = self.views[member.client].find(record)
        if held is not None:
            held.asked = AcknowledgeType[what.split(maxsplit=1)[0].upper()]
            held.asked_at = member.now + after

    def closing(self, member: SimulatedShareMember, deadline: Deadline) -> None:
        """A member begins to close."""
        view = self.views[member.client]
        view.close = deadline
        for held in view.held.values():
            if held.state in (RecordState.HELD, RecordState.WAITING):
                held.asked, held.asked_at = AcknowledgeType.RELEASE, member.now

    def closed(self, member: SimulatedShareMember) -> None:
        """A member has closed."""
        view = self.views[member.client]
        if view.held:
            raise Violation("S4", f"client {member.client} ends with {len(view.held)} records")
        view.running.clear()
        self.counts["closed"] += 1

    def died(self, member: SimulatedShareMember) -> None:
        """A member has ended without a word."""
        self.views[member.client].running.clear()
        self.views[member.client].held.clear()

    # --- the end ---------------------------------------------------------------------------------

    def unfinished(self) -> list[str]:
        """What has not been accepted or rejected, and is not at its limit."""
        found: list[str] = []
        for partition, state in self._brokers.shares.items():
            begin = state.start
            if begin is None:
                found.append(f"partition {partition.partition} was never fetched")
            elif begin < state.log.end:
                found.append(f"{offset_name((partition, begin))} of {state.log.end}")
        return found

    def check_end(self) -> None:
        """All members have closed."""
        for partition, state in self._brokers.shares.items():
            for offset, entry in state.offsets.items():
                where = partition, offset
                if entry.state is OffsetState.ARCHIVED and where not in self.taken:
                    if entry.count < self._brokers.options.delivery_limit:
                        raise Violation("S11", f"{offset_name(where)} is archived")
                    self.counts["archived at the limit"] += 1
                    continue
                kind = self.taken.get(where)
                if (kind is AcknowledgeType.GAP) == has_record(state, offset):
                    raise Violation("S5", f"{offset_name(where)} was ended by {kind}")
                if self.strict and entry.count != 1 + self.releases[where]:
                    raise Violation(
                        "S10", f"{offset_name(where)} was delivered {entry.count} times"
                    )
            begin, first = self.begins.get(partition), min(state.offsets, default=None)
            if begin is not None and first is not None and first > begin:
                raise Violation("S11", f"{offset_name((partition, begin))} is skipped")
