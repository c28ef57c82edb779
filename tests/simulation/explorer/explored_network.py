"""A network whose requests and responses are points of a run."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from simulation.cluster.network import (
    BrokerService,
    Connection,
    Network,
    PendingRequest,
    RequestFate,
)
from simulation.explorer.branches import PassedEvent
from simulation.explorer.path import Deviation
from typing_extensions import override

from asyncrevoke.client.producing.requests import ProduceRequest
from asyncrevoke.client.producing.transactions.offset_requests import TxnOffsetCommitRequest
from asyncrevoke.client.producing.transactions.requests import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
)
from asyncrevoke.client.protocol.messages import (
    ConsumerGroupHeartbeatRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    OffsetCommitRequest,
    Request,
    Response,
    SyncGroupRequest,
)
from asyncrevoke.client.protocol.share_messages import (
    ShareAcknowledgeRequest,
    ShareFetchRequest,
    ShareGroupHeartbeatRequest,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from simulation.explorer.branches import Branches, Option

    from asyncrevoke.testing.fake_kafka.clock import Clock

COORDINATOR: Final = "the coordinator"
_OF_TRANSACTIONS = (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    ProduceRequest,
    TxnOffsetCommitRequest,
)
CHANGES_STATE = (
    ConsumerGroupHeartbeatRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    OffsetCommitRequest,
    SyncGroupRequest,
    # Of share groups.
    ShareAcknowledgeRequest,
    ShareFetchRequest,
    ShareGroupHeartbeatRequest,
    *_OF_TRANSACTIONS,
)
WAIT = (Deviation.WAIT, 1)
# A freeze is shorter than a session, or longer.
MEMBER_OPTIONS = (
    WAIT,
    (Deviation.FREEZE, 500),
    (Deviation.FREEZE, 12_000),
    (Deviation.CRASH, 0),
    (Deviation.LEAVE, 0),
)
_LOSSES = ((Deviation.LOST_BEFORE, 0), (Deviation.LOST_AFTER, 0))
# Before a member asks again, and long after it.
_LATE = ((Deviation.LATE, 5), (Deviation.LATE, 400))
# Before it asks again, and in its next transaction.
_LATE_IN_TRANSACTIONS = tuple((Deviation.LATE, amount) for amount in (5, 236, 242))
_FATES = {
    Deviation.LOST_BEFORE: RequestFate.LOST_BEFORE,
    Deviation.LOST_AFTER: RequestFate.LOST_AFTER,
    Deviation.LATE: RequestFate.LATE,
}


class ExploredNetwork(Network):
    """Only a request that may change the group, a transaction or the log of its results can be
    processed late or wait for others: the brokers' state is the same whenever they process another
    one."""

    def __init__(
        self, clock: Clock, rng: Random, service: BrokerService, branches: Branches
    ) -> None:
        super().__init__(clock, rng, service)
        self.fate = self._choose_fate
        # Told which request of a client is not to be processed, or not responded to.
        self.loses: Callable[[int], None] = lambda _client: None
        self._branches = branches
        self._late_by = 0.0

    def _choose_fate(self, client: int, message: Request) -> RequestFate | None:
        late: tuple[Option, ...] = ()
        if isinstance(message, _OF_TRANSACTIONS):
            late = _LATE_IN_TRANSACTIONS
        elif isinstance(message, CHANGES_STATE):
            late = _LATE
        point = f"client {client} sends {type(message).__name__}"
        choice = self._branches.choose(point, (*_LOSSES, *late))
        if choice is None:
            return None
        self.loses(client)
        self._late_by = choice.amount / 1000
        return _FATES[choice.deviation]

    @override
    def _arrive(self, pending: PendingRequest) -> None:
        message, arrive = pending.send.message, partial(super()._arrive, pending)
        if not isinstance(message, CHANGES_STATE):
            arrive()
            return
        client, name = pending.endpoint.client, type(message).__name__
        event = PassedEvent(
            f"the coordinator receives {name} of client {client}",
            (WAIT, (Deviation.JOIN, 0)),
            COORDINATOR,
            client,
            ("to", pending.connection),
        )
        self._branches.pass_event(event, arrive)

    @override
    def _process(self, pending: PendingRequest) -> None:
        super()._process(pending)
        self._processed(pending)

    @override
    def _process_ghost(self, pending: PendingRequest) -> None:
        super()._process_ghost(pending)
        self._processed(pending)

    def _processed(self, pending: PendingRequest) -> None:
        if isinstance(pending.send.message, CHANGES_STATE):
            self._branches.happened(COORDINATOR)

    @override
    def _deliver(self, pending: PendingRequest, response: Response) -> None:
        client = pending.endpoint.client
        event = PassedEvent(
            f"client {client} receives {type(response).__name__}",
            MEMBER_OPTIONS,
            client,
            client,
            ("from", pending.connection),
        )
        self._branches.pass_event(event, partial(super()._deliver, pending, response))

    @override
    def disconnect(self, connection: Connection) -> None:
        super().disconnect(connection)
        connection.ghost_delay = self._late_by
