"""Blocking requests to a broker's plain listener: list brokers, create topics, add ACLs."""

from __future__ import annotations

import datetime
import io
import socket
import struct
import time
from typing import TYPE_CHECKING, Literal, TypeVar

from kio.schema.api_versions.v0.request import ApiVersionsRequest
from kio.schema.api_versions.v0.response import ApiVersionsResponse
from kio.schema.create_acls.v3.request import AclCreation, CreateAclsRequest
from kio.schema.create_acls.v3.response import CreateAclsResponse
from kio.schema.create_partitions.v3.request import CreatePartitionsRequest, CreatePartitionsTopic
from kio.schema.create_partitions.v3.response import CreatePartitionsResponse
from kio.schema.create_topics.v7.request import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from kio.schema.create_topics.v7.response import CreateTopicsResponse
from kio.schema.delete_topics.v5.request import DeleteTopicsRequest
from kio.schema.delete_topics.v5.response import DeleteTopicsResponse
from kio.schema.errors import ErrorCode
from kio.schema.list_offsets.v7.request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from kio.schema.list_offsets.v7.response import ListOffsetsResponse
from kio.schema.metadata.v9.request import MetadataRequest, MetadataRequestTopic
from kio.schema.metadata.v9.response import MetadataResponse
from kio.schema.types import BrokerId, TopicName
from kio.serial import entity_writer
from kio.static.primitive import i8, i16, i32, i32Timedelta, i64

from asyncrevoke.broker.errors import BrokerRequestError
from asyncrevoke.printable import printable
from asyncrevoke.protocol.guard import HostileFrame, read_response

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from types import TracebackType
    from typing import Self

    from kio.static.protocol import RequestPayload, ResponsePayload

    Answer = TypeVar("Answer", bound=ResponsePayload)

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
_LATEST = -1


class Admin:
    """A connection of its own for a few requests; a context manager.

    Args:
        address: ``host:port`` of a listener without TLS and SASL.
        timeout: seconds for connecting, and for each answer.

    Raises:
        OSError: from every call, if the broker cannot be reached or does not answer in time.
    """

    def __init__(self, address: str, timeout: float = REQUEST_TIMEOUT) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host.strip("[]"), int(port)), timeout)
        self._socket.settimeout(timeout)
        self._correlation = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def brokers(self) -> frozenset[int]:
        """The node ids of the live brokers, in this broker's metadata."""
        versions = self._ask(ApiVersionsRequest(), ApiVersionsResponse)
        if versions.error_code is not ErrorCode.none:
            raise _refused("ApiVersions", versions.error_code, None)
        return frozenset(int(broker.node_id) for broker in self._metadata(()).brokers)

    def create_topic(
        self, name: str, partitions: int, replication: int, config: Mapping[str, str]
    ) -> None:
        """Create a topic; returns when the controller has accepted it."""
        topic = CreatableTopic(
            name=TopicName(name),
            num_partitions=i32(partitions),
            replication_factor=i16(replication),
            assignments=(),
            configs=tuple(
                CreatableTopicConfig(name=key, value=value) for key, value in config.items()
            ),
        )
        answer = self._ask(
            CreateTopicsRequest(topics=(topic,), timeout=_timeout()), CreateTopicsResponse
        )
        for result in answer.topics:
            _check(f"creating topic {name!r}", result.error_code, result.error_message)

    def add_partitions(self, name: str, total: int) -> None:
        """Raise a topic's number of partitions to ``total``."""
        topic = CreatePartitionsTopic(name=TopicName(name), count=i32(total), assignments=None)
        answer = self._ask(
            CreatePartitionsRequest(topics=(topic,), timeout=_timeout(), validate_only=False),
            CreatePartitionsResponse,
        )
        for result in answer.results:
            _check(f"adding partitions to {name!r}", result.error_code, result.error_message)

    def delete_topic(self, name: str) -> None:
        """Delete a topic; returns when the controller has accepted it."""
        answer = self._ask(
            DeleteTopicsRequest(topic_names=(TopicName(name),), timeout=_timeout()),
            DeleteTopicsResponse,
        )
        for result in answer.responses:
            _check(f"deleting topic {name!r}", result.error_code, result.error_message)

    def partitions(self, name: str) -> int:
        """How many partitions of the topic have a leader; 0 if this broker does not know it."""
        return sum(map(len, self.leaders(name).values()))

    def leaders(self, name: str) -> dict[str, list[int]]:
        """The partitions of the topic that have a leader, by the address of the leader."""
        metadata = self._metadata((name,))
        address = {
            int(broker.node_id): f"{broker.host}:{int(broker.port)}" for broker in metadata.brokers
        }
        found: dict[str, list[int]] = {}
        for topic in metadata.topics:
            for partition in topic.partitions:
                leader = address.get(int(partition.leader_id))
                if leader is not None and partition.error_code is ErrorCode.none:
                    found.setdefault(leader, []).append(int(partition.partition_index))
        return found

    def leads(self, name: str, partitions: Iterable[int]) -> bool:
        """Whether this broker serves these partitions. A new leader may learn last that it is the
        leader."""
        request = ListOffsetsRequest(
            replica_id=BrokerId(-1),
            isolation_level=i8(0),
            topics=(
                ListOffsetsTopic(
                    name=TopicName(name),
                    partitions=tuple(
                        ListOffsetsPartition(partition_index=i32(number), timestamp=i64(_LATEST))
                        for number in partitions
                    ),
                ),
            ),
        )
        answer = self._ask(request, ListOffsetsResponse)
        return all(
            partition.error_code is ErrorCode.none
            for topic in answer.topics
            for partition in topic.partitions
        )

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
            AclCreation(
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
        answer = self._ask(CreateAclsRequest(creations=creations), CreateAclsResponse)
        for result in answer.results:
            _check(f"allowing {user!r}", result.error_code, result.error_message)

    def _metadata(self, topics: Sequence[str]) -> MetadataResponse:
        request = MetadataRequest(
            topics=tuple(MetadataRequestTopic(name=TopicName(name)) for name in topics),
            allow_auto_topic_creation=False,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=False,
        )
        return self._ask(request, MetadataResponse)

    def _ask(self, request: RequestPayload, answer: type[Answer]) -> Answer:
        self._correlation += 1
        header_type = request.__header_schema__
        header = header_type(
            request_api_key=request.__api_key__,
            request_api_version=request.__version__,
            correlation_id=i32(self._correlation),
            client_id=CLIENT_ID,
        )
        with io.BytesIO() as buffer:
            entity_writer(header_type)(buffer, header)
            entity_writer(type(request))(buffer, request)
            frame = buffer.getvalue()
        self._socket.sendall(struct.pack(">i", len(frame)) + frame)
        (size,) = struct.unpack(">i", self._receive(4))
        data = self._receive(size)
        try:
            return read_response(data, answer)[0]
        except HostileFrame as error:
            what = f"the broker's answer is no {answer.__name__}"
            raise ConnectionAbortedError(f"{what}: {error}") from error

    def _receive(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            part = self._socket.recv(size - len(parts))
            if not part:
                raise ConnectionResetError("the broker closed the connection")
            parts += part
        return bytes(parts)


def wait_for_topic(addresses: Iterable[str], name: str, partitions: int, timeout: float) -> None:
    """Wait until every broker knows the leader of each partition, and each leader serves its
    partitions.

    Raises:
        TimeoutError: that took longer than ``timeout`` seconds.
    """
    deadline = time.monotonic() + timeout
    for address in addresses:
        while not _serves(address, name, partitions):
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"not all {partitions} partitions of {name!r} have a leader after {timeout:g} s"
                )
            time.sleep(RETRY_INTERVAL)


def _serves(address: str, name: str, partitions: int) -> bool:
    with Admin(address) as admin:
        leaders = admin.leaders(name)
    if sum(map(len, leaders.values())) < partitions:
        return False
    try:
        for leader, led in leaders.items():
            with Admin(leader) as admin:
                if not admin.leads(name, led):
                    return False
    except OSError:
        return False  # a leader that has just ended: another follows
    return True


def _timeout() -> i32Timedelta:
    return i32Timedelta.parse(datetime.timedelta(seconds=REQUEST_TIMEOUT))


def _check(what: str, code: ErrorCode, message: str | None) -> None:
    if code is not ErrorCode.none:
        raise _refused(what, code, message)


def _refused(what: str, code: ErrorCode, message: str | None) -> BrokerRequestError:
    reason = f" ({printable(message)})" if message else ""
    return BrokerRequestError(f"{what}: the broker answers {code.name}{reason}", int(code))
