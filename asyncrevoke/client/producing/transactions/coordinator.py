"""Where the coordinators of a transaction are, and which transaction.version they offer."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from asyncrevoke.client.backoff import Backoff
from asyncrevoke.client.core.io.effects import Node
from asyncrevoke.client.producing.transactions.error_table import FIND_ERRORS, Action
from asyncrevoke.client.producing.transactions.requests import offered_transaction_version
from asyncrevoke.client.producing.transactions.transaction import PartitionBatches
from asyncrevoke.client.protocol.messages import (
    FEATURES_REQUEST,
    ErrorCode,
    FindCoordinatorRequest,
    Request,
)

if TYPE_CHECKING:
    from asyncrevoke.client.producing.queueing.result_topics import ResultTopics
    from asyncrevoke.client.protocol.messages import (
        ApiVersionsResponse,
        FindCoordinatorResponse,
    )


class TransactionRequest(NamedTuple):
    """A request to send; ``batches`` are those of a Produce, whose first ones are in it. Other
    requests are for a ``coordinator``."""

    node: Node
    message: Request
    batches: tuple[PartitionBatches, ...] = ()
    coordinator: Coordinator | None = None


class Coordinator:
    """The broker that FindCoordinator names. One request at a time is sent to it: ``asked`` is the
    one in flight."""

    def __init__(self, find: FindCoordinatorRequest, topics: ResultTopics) -> None:
        self.find = find
        self._topics = topics
        self._node: Node | None = None
        self.asked: Request | None = None
        # No request is sent before.
        self.retry_at = 0.0
        self._backoff = Backoff(0.02, 1.0)

    def is_due(self, now: float) -> bool:
        """Whether a request may be sent now."""
        return self.asked is None and self.retry_at <= now

    def ask(self, message: Request) -> TransactionRequest:
        """The next request: this one, or the one that it needs before."""
        node = self._node
        if node is None:
            node, message = self._topics.any_node(), self.find
        self.asked = message
        return TransactionRequest(node, message, coordinator=self)

    def answered(self) -> None:
        """The request in flight has ended."""
        self.asked = None

    def again(self, now: float, *, find: bool = False) -> None:
        """Send the request again after a backoff; ``find``: the coordinator may be another one."""
        if find:
            self._node = None
        self.retry_at = now + self._backoff.failed()

    def step_done(self) -> None:
        """The request after this one is sent at once."""
        self.retry_at = 0.0
        self._backoff.succeeded()

    def found(self, now: float, response: FindCoordinatorResponse) -> bool:
        """Whether it is found, or may be later; False if the broker refuses to name it."""
        if response.error is ErrorCode.none:
            self._node = Node(response.node_id, response.host, response.port)
            return True
        self.again(now)
        return FIND_ERRORS.get(response.error, Action.REFUSED) is not Action.REFUSED


class TransactionCoordinator(Coordinator):
    """``version`` is the transaction.version that it offers, None while that is to be asked."""

    def __init__(self, transactional_id: str, topics: ResultTopics) -> None:
        super().__init__(FindCoordinatorRequest(transactional_id=transactional_id), topics)
        self.version: int | None = None
        self._version_at = 0.0

    def ask_version(self) -> TransactionRequest:
        """Ask for the version alone."""
        return self.ask(FEATURES_REQUEST)

    def versions_received(self, now: float, response: ApiVersionsResponse) -> None:
        """It has responded to ApiVersions."""
        if response.error is not ErrorCode.none:
            self.again(now, find=True)
            return
        self._version_at = now
        self.version = offered_transaction_version(response)

    def forget_version(self, older_than: float = float("inf")) -> None:
        """Ask for the version before the next transaction, if it is that old."""
        if self._version_at < older_than:
            self.version = None
