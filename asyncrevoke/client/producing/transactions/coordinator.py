"""Where the coordinator of a transactional id is, and which transaction.version it offers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.client.backoff import Backoff
from asyncrevoke.client.core.io.effects import Node
from asyncrevoke.client.producing.transactions.error_table import FIND_ERRORS, Action
from asyncrevoke.client.producing.transactions.requests import offered_transaction_version
from asyncrevoke.client.producing.transactions.transaction import TransactionRequest
from asyncrevoke.client.protocol.messages import (
    FEATURES_REQUEST,
    ErrorCode,
    FindCoordinatorRequest,
)

if TYPE_CHECKING:
    from asyncrevoke.client.producing.queueing.result_topics import ResultTopics
    from asyncrevoke.client.protocol.messages import (
        ApiVersionsResponse,
        FindCoordinatorResponse,
        Request,
    )


class TransactionCoordinator:
    """One request at a time is sent to it; ``is_asked`` while one is in flight.

    ``version`` is the transaction.version that it offers, None while that is to be asked.
    """

    def __init__(self, transactional_id: str, topics: ResultTopics) -> None:
        self._transactional_id = transactional_id
        self._topics = topics
        self._node: Node | None = None
        self.version: int | None = None
        self._version_at = 0.0
        self.is_asked = False
        # No request is sent before.
        self.retry_at = 0.0
        self._backoff = Backoff(0.02, 1.0)

    def ask(self, message: Request | None) -> TransactionRequest:
        """The next request: this one, or the one that it needs before. None asks for the version
        alone."""
        self.is_asked = True
        if self._node is None:
            find = FindCoordinatorRequest(transactional_id=self._transactional_id)
            return TransactionRequest(self._topics.any_node(), find)
        return TransactionRequest(self._node, message or FEATURES_REQUEST)

    def answered(self) -> None:
        """The request in flight has ended."""
        self.is_asked = False

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
