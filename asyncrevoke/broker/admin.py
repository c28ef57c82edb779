"""Blocking requests to a broker's plain listener: list brokers, create topics, add ACLs."""

from __future__ import annotations

import asyncrevoke.client.protocol.messages  # noqa: F401  # pyright: ignore[reportUnusedImport]

# isort: split
import datetime
import time
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Literal, TypeVar, cast

from kio.schema.create_acls.v3 import request as create_acls
from kio.schema.create_acls.v3.response import CreateAclsResponse
from kio.schema.create_partitions.v3 import request as create_partitions
from kio.schema.create_partitions.v3.response import CreatePartitionsResponse
from kio.schema.create_topics.v7 import request as create_topics
from kio.schema.create_topics.v7.response import CreateTopicsResponse
from kio.schema.delete_topics.v5 import request as delete_topics
from kio.schema.delete_topics.v5.response import DeleteTopicsResponse
from kio.schema.errors import ErrorCode
from kio.schema.types import TopicName
from kio.static.primitive import i8, i16, i32, i32Timedelta

from asyncrevoke.broker.errors import BrokerRequestError
from asyncrevoke.client.config import ConsumerConfig
from asyncrevoke.client.core.io.effects import FailureKind
from asyncrevoke.client.model import TopicPartition
from asyncrevoke.client.printable import host_and_port, printable
from asyncrevoke.client.protocol.messages import (
    LATEST_TIMESTAMP,
    Entities,
    EntityRequest,
    EntityResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    MetadataRequest,
    MetadataResponse,
    OffsetQuery,
    Request,
    Response,
)
from asyncrevoke.client.runtime.net.fatal_errors import RequestFailed
from asyncrevoke.client.runtime.net.single_request import request_blocking

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from kio.schema.create_acls.v3.response import AclCreationResult
    from kio.schema.create_partitions.v3.response import CreatePartitionsTopicResult
    from kio.schema.create_topics.v7.response import CreatableTopicResult
    from kio.schema.delete_topics.v5.response import DeletableTopicResult

    ResponseT = TypeVar("ResponseT")
    ResultT = TypeVar(
        "ResultT",
        AclCreationResult,
        CreatableTopicResult,
        CreatePartitionsTopicResult,
        DeletableTopicResult,
    )

REQUEST_TIMEOUT = 30.0
RETRY_INTERVAL = 0.05
CLIENT_ID = "asyncrevoke-broker"

Resource = Literal["topic", "group", "cluster", "transactional_id"]
Operation = Literal["all", "read", "write", "create", "delete", "alter", "describe"]

# org.apache.kafka.common.resource.ResourceType and acl.AclOperation
_RESOURCES: Mapping[Resource, int] = {
    "topic": 2, "group": 3, "cluster": 4, "transactional_id": 5,
}  # fmt: skip
_OPERATIONS: Mapping[Operation, int] = {
    "all": 2, "read": 3, "write": 4, "create": 5, "delete": 6, "alter": 7, "describe": 8,
}  # fmt: skip
_LITERAL, _PREFIXED = 3, 4
_ALLOW = 3
# The timeout of the controller, in each request.
_CONTROLLER_TIMEOUT = i32Timedelta.parse(datetime.timedelta(seconds=REQUEST_TIMEOUT))


class CreateTopicsRequest(EntityRequest[CreateTopicsResponse], frozen=True, kw_only=True):
    """Creates topics."""

    entities: ClassVar[Entities] = (create_topics.CreateTopicsRequest, CreateTopicsResponse)
    topics: tuple[create_topics.CreatableTopic, ...]
    timeout: i32Timedelta = _CONTROLLER_TIMEOUT


class CreatePartitionsRequest(EntityRequest[CreatePartitionsResponse], frozen=True, kw_only=True):
    """Adds partitions to topics."""

    entities: ClassVar[Entities] = (
        create_partitions.CreatePartitionsRequest,
        CreatePartitionsResponse,
    )
    topics: tuple[create_partitions.CreatePartitionsTopic, ...]
    timeout: i32Timedelta = _CONTROLLER_TIMEOUT
    validate_only: bool = False


class DeleteTopicsRequest(EntityRequest[DeleteTopicsResponse], frozen=True, kw_only=True):
    """Deletes topics."""

    entities: ClassVar[Entities] = (delete_topics.DeleteTopicsRequest, DeleteTopicsResponse)
    topic_names: tuple[TopicName, ...]
    timeout: i32Timedelta = _CONTROLLER_TIMEOUT


class CreateAclsRequest(EntityRequest[CreateAclsResponse], frozen=True, kw_only=True):
    """Adds access rules."""

    entities: ClassVar[Entities] = (create_acls.CreateAclsRequest, CreateAclsResponse)
    creations: tuple[create_acls.AclCreation, ...]


class Admin:
    """Requests to one broker, each over a new connection. What only the controller may do, and the
    broker does not forward, is sent to the controller.

    ``server`` is ``host:port`` of a listener without TLS and SASL, or a configuration, whose first
    bootstrap server is used. Connecting and each response may take ``timeout`` seconds. Raises
    ConfigError for an invalid address, and from every call OSError if the broker cannot be reached
    or does not respond in time.
    """

    def __init__(self, server: str | ConsumerConfig, timeout: float = REQUEST_TIMEOUT) -> None:
        if isinstance(server, str):
            server = ConsumerConfig(bootstrap_servers=server, client_id=CLIENT_ID)
        self._config = server
        self._timeout = timeout

    def brokers(self) -> frozenset[int]:
        """The node ids of the live brokers, in this broker's metadata."""
        return frozenset(broker.node_id for broker in self._metadata().brokers)

    def create_topic(
        self, name: str, partitions: int, replication: int, config: Mapping[str, str]
    ) -> int:
        """Create a topic. Returns its number of partitions when the controller has accepted it: -1
        if the broker chose it and this user may not see it (DESCRIBE_CONFIGS on the topic).

        With -1 for partitions or replicas, the broker uses its defaults (KIP-464).
        """
        topic = create_topics.CreatableTopic(
            name=TopicName(name),
            num_partitions=i32(partitions),
            replication_factor=i16(replication),
            assignments=(),
            configs=tuple(
                create_topics.CreatableTopicConfig(name=key, value=value)
                for key, value in config.items()
            ),
        )
        request = CreateTopicsRequest(topics=(topic,))
        what = f"creating topic {name!r}"
        for result in self._done_by_controller(what, request, lambda found: found.topics):
            if partitions < 0:
                return int(result.num_partitions)
        return partitions

    def add_partitions(self, name: str, total: int) -> None:
        """Raise a topic's number of partitions to ``total``."""
        topic = create_partitions.CreatePartitionsTopic(
            name=TopicName(name), count=i32(total), assignments=None
        )
        request = CreatePartitionsRequest(topics=(topic,))
        what = f"adding partitions to {name!r}"
        self._done_by_controller(what, request, lambda found: found.results)

    def delete_topic(self, name: str) -> None:
        """Delete a topic; returns when the controller has accepted it."""
        request = DeleteTopicsRequest(topic_names=(TopicName(name),))
        self._done_by_controller(f"deleting topic {name!r}", request, lambda found: found.responses)

    def partitions(self, name: str) -> int:
        """How many partitions of the topic have a leader; 0 if this broker does not know it."""
        return sum(map(len, self.leaders(name).values()))

    def leaders(self, name: str) -> dict[str, list[int]]:
        """The partitions of the topic that have a leader, by the address of the leader."""
        metadata = self._metadata(name)
        address = {
            broker.node_id: host_and_port(broker.host, broker.port) for broker in metadata.brokers
        }
        found: dict[str, list[int]] = {}
        for topic in metadata.topics:
            for partition in topic.partitions:
                leader = address.get(partition.leader_id)
                if leader is not None and partition.error is ErrorCode.none:
                    found.setdefault(leader, []).append(partition.partition)
        return found

    def leads(self, name: str, partitions: Iterable[int]) -> bool:
        """Whether this broker serves these partitions. A new leader may be the last broker that
        learns of its leadership."""
        queries = tuple(
            OffsetQuery(partition=TopicPartition(name, number), timestamp=LATEST_TIMESTAMP)
            for number in partitions
        )
        response = cast("ListOffsetsResponse", self._send(ListOffsetsRequest(queries=queries)))
        return all(listed.error is ErrorCode.none for listed in response.offsets)

    def allow(
        self,
        user: str,
        resource: Resource,
        name: str,
        operations: Iterable[Operation],
        *,
        prefixed: bool,
    ) -> None:
        """Add access rules for one user."""
        creations = tuple(
            create_acls.AclCreation(
                resource_type=i8(_RESOURCES[resource]),
                resource_name="kafka-cluster" if resource == "cluster" else name,
                resource_pattern_type=i8(_PREFIXED if prefixed else _LITERAL),
                principal=f"User:{user}",
                host="*",
                operation=i8(_OPERATIONS[operation]),
                permission_type=i8(_ALLOW),
            )
            for operation in operations
        )
        request = CreateAclsRequest(creations=creations)
        self._done_by_controller(f"allowing {user!r}", request, lambda found: found.results)

    def _metadata(self, *topics: str) -> MetadataResponse:
        return cast("MetadataResponse", self._send(MetadataRequest(topics=topics)))

    def _done_by_controller(
        self,
        what: str,
        request: EntityRequest[ResponseT],
        results: Callable[[ResponseT], Sequence[ResultT]],
    ) -> Sequence[ResultT]:
        """The results of the broker, or those of the controller if only that takes the request, as
        with ZooKeeper. Raises BrokerRequestError, which names ``what``, for an error.

        Metadata lag behind when the controller changes: they are requested until they name a broker
        that takes the request, for at most the timeout.
        """
        deadline = time.monotonic() + self._timeout
        broker = self
        while True:
            found = results(broker._response_to(request))
            rejected = any(result.error_code is ErrorCode.not_controller for result in found)
            if not rejected or time.monotonic() > deadline:
                for result in found:
                    _check(what, result.error_code, result.error_message)
                return found
            time.sleep(RETRY_INTERVAL)
            metadata = self._metadata()
            for node in metadata.brokers:
                if node.node_id == metadata.controller_id:
                    controller = host_and_port(node.host, node.port)
                    config = replace(self._config, bootstrap_servers=controller)
                    broker = Admin(config, self._timeout)

    def _response_to(self, request: EntityRequest[ResponseT]) -> ResponseT:
        return cast("ResponseT", cast("EntityResponse", self._send(request)).entity)

    def _send(self, request: Request) -> Response:
        try:
            return request_blocking(request, self._config, self._timeout)
        except RequestFailed as failure:
            late = failure.kind is FailureKind.TIMEOUT or isinstance(
                failure.__cause__, TimeoutError
            )
            raise (TimeoutError if late else ConnectionError)(failure.detail) from failure


def wait_for_topic(addresses: Iterable[str], name: str, partitions: int, timeout: float) -> None:
    """Wait until every broker knows the leader of each partition, and each leader serves its
    partitions. Raises TimeoutError after ``timeout`` seconds."""
    deadline = time.monotonic() + timeout
    for address in addresses:
        while not _serves(address, name, partitions):
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"not all {partitions} partitions of {name!r} have a leader after {timeout:g} s"
                )
            time.sleep(RETRY_INTERVAL)


def _serves(address: str, name: str, partitions: int) -> bool:
    leaders = Admin(address).leaders(name)
    if sum(map(len, leaders.values())) < partitions:
        return False
    try:
        return all(Admin(leader).leads(name, led) for leader, led in leaders.items())
    except OSError:
        return False  # the leader has just stopped, and another one is elected


def _check(what: str, code: ErrorCode, message: str | None) -> None:
    if code is not ErrorCode.none:
        reason = f" ({printable(message)})" if message else ""
        raise BrokerRequestError(f"{what}: the broker responds {code.name}{reason}", int(code))
