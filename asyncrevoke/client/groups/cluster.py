"""Requests about groups to the brokers of a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Self, TypeVar, cast

from asyncrevoke.client.core.io.effects import Channel, Failed, FailureKind, Node, Send
from asyncrevoke.client.groups.errors import (
    BrokerUnavailableError,
    CoordinatorUnavailableError,
    GroupsError,
    UnsupportedRequestError,
    retry_transient_errors,
)
from asyncrevoke.client.protocol.messages import (
    EntityResponse,
    ErrorCode,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataResponse,
)
from asyncrevoke.client.runtime.hooks.event_log import EventLog
from asyncrevoke.client.runtime.net.channels import Channels

if TYPE_CHECKING:
    from collections.abc import Iterable

    from asyncrevoke.client.config import ConsumerConfig
    from asyncrevoke.client.protocol.messages import EntityRequest, KafkaMessage, Request

    Response = TypeVar("Response")
    Received = TypeVar("Received", bound=KafkaMessage)

_COORDINATOR_WITHIN: Final = 10.0
UNSETTLED: Final = frozenset(
    (
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.coordinator_not_available,
        ErrorCode.not_coordinator,
    )
)
"""Errors of a coordinator that is moving or loading."""


class GroupsClient:
    """Connections to the brokers; an async context manager.

    ``config`` gives the addresses, the security options and ``request_timeout``. Raises
    GroupsError from every call.
    """

    def __init__(self, config: ConsumerConfig) -> None:
        self._servers = ", ".join(config.bootstrap_servers)
        self._bootstrap = [Node(-1 - n, *address) for n, address in enumerate(config.addresses)]
        self._timeout = config.request_timeout
        self._channels = Channels(config, EventLog())
        self._nodes: dict[int, Node] = {}

    async def __aenter__(self) -> Self:
        try:
            await self.metadata(())
        except GroupsError as error:
            await self._channels.close()
            raise GroupsError(
                f"no broker responds at {self._servers} ({error}): check "
                "bootstrap_servers=..., security_protocol=... and sasl_mechanism=..."
            ) from error
        except BaseException:
            await self._channels.close()
            raise
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self._channels.close()

    def brokers(self) -> dict[int, str]:
        """Addresses of all brokers by their ids."""
        return {node.node_id: node.address for node in self._nodes.values()}

    async def metadata(self, topics: Iterable[str]) -> MetadataResponse:
        """The brokers, and the partitions of these topics with their leaders."""
        request = MetadataRequest(topics=tuple(topics))
        response = await self._send_to_any(request, MetadataResponse)
        check(response.error, "describing the cluster")
        self._nodes = {
            broker.node_id: Node(broker.node_id, broker.host, broker.port)
            for broker in response.brokers
        }
        return response

    async def coordinator(self, group: str) -> int:
        """The broker that coordinates a group."""
        transient = (BrokerUnavailableError, CoordinatorUnavailableError)
        try:
            return await retry_transient_errors(
                lambda: self._coordinator(group), _COORDINATOR_WITHIN, transient
            )
        except transient as error:
            raise GroupsError(f"group {group!r} has no coordinator: {error}") from error

    async def _coordinator(self, group: str) -> int:
        request = FindCoordinatorRequest(group_id=group)
        found = await self._send_to_any(request, FindCoordinatorResponse)
        check(found.error, f"finding the coordinator of group {group!r}")
        self._nodes[found.node_id] = Node(found.node_id, found.host, found.port)
        return found.node_id

    async def ask(self, node: int, request: EntityRequest[Response]) -> Response:
        """The response of one broker, as kio has it."""
        response = await self.send(node, request, EntityResponse)
        return cast("Response", response.entity)

    async def ask_any(self, request: EntityRequest[Response]) -> Response:
        """The response of any broker, as kio has it."""
        response = await self._send_to_any(request, EntityResponse)
        return cast("Response", response.entity)

    async def send(self, node: int, request: Request, expected: type[Received]) -> Received:
        """The response of one broker."""
        known = self._nodes.get(node)
        if known is None:
            raise BrokerUnavailableError(f"the cluster has no broker {node}")
        return await self._send(known, request, expected)

    async def _send_to_any(self, request: Request, expected: type[Received]) -> Received:
        """The response of the first broker that gives one."""
        failure = GroupsError(f"no broker is known at {self._servers}")
        for node in (*self._nodes.values(), *self._bootstrap):
            try:
                return await self._send(node, request, expected)
            except GroupsError as error:
                failure = error
        raise failure

    async def _send(self, node: Node, request: Request, expected: type[Received]) -> Received:
        send = Send(0, request, node, Channel.METADATA, self._timeout)
        received = await self._channels.request(send)
        if isinstance(received, Failed):
            raise _failure(received)
        if not isinstance(received.message, expected):
            raise GroupsError(f"the broker sent another response than {expected.__name__}")
        return received.message


def _failure(failed: Failed) -> GroupsError:
    if failed.kind is FailureKind.UNSUPPORTED:
        return UnsupportedRequestError(failed.detail)
    if failed.kind in (FailureKind.AUTHENTICATION, FailureKind.MALFORMED):
        return GroupsError(failed.detail)
    return BrokerUnavailableError(failed.detail)


def check(code: ErrorCode, what: str, right: str = "DESCRIBE") -> None:
    """Raise GroupsError if ``code``, a broker's response to ``what``, is an error. ``right`` is
    the operation on a group that the user must be allowed."""
    if code is ErrorCode.none:
        return
    if code in (ErrorCode.group_authorization_failed, ErrorCode.cluster_authorization_failed):
        raise GroupsError(f"{what}: not authorized; grant {right} to this user")
    if code is ErrorCode.topic_authorization_failed:
        raise GroupsError(
            f"{what}: not authorized; grant DESCRIBE on all topics of the group to this user"
        )
    if code in UNSETTLED:
        raise CoordinatorUnavailableError(f"{what}: the broker returned {code.name}")
    raise GroupsError(f"{what}: the broker returned {code.name}")
