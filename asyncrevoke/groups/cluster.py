"""Requests about groups to the brokers of a cluster, sent over aiokafka's client."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

from aiokafka import errors as kafka_errors
from kio.schema.errors import ErrorCode

from asyncrevoke.config.security import client_options
from asyncrevoke.groups.errors import CoordinatorUnavailableError, GroupsError
from asyncrevoke.groups.kio_request import LargeAnswer
from asyncrevoke.runtime.net.decode_threads import DecodeThreads
from asyncrevoke.runtime.net.kafka_clients import kafka_client

if TYPE_CHECKING:
    from kio.static.protocol import ResponsePayload

    from asyncrevoke.config import ConsumerConfig
    from asyncrevoke.groups.kio_request import KioRequest

    Answer = TypeVar("Answer", bound=ResponsePayload)

_COORDINATOR_WITHIN = 10.0
_RETRY_AFTER = 0.2
_GROUP_COORDINATOR = 0
_UNSETTLED = frozenset(
    (
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.coordinator_not_available,
        ErrorCode.not_coordinator,
    )
)


class _LastLine(logging.Handler):
    line = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.line = record.getMessage()


class GroupsClient:
    """Connections to the brokers; an async context manager.

    ``config`` gives the addresses, the security options and ``request_timeout``. Raises
    GroupsError from every call.
    """

    def __init__(self, config: ConsumerConfig) -> None:
        self._servers = ", ".join(config.bootstrap_servers)
        self._threads = DecodeThreads()
        # Half typed.
        self._client: Any = kafka_client(
            request_timeout_ms=int(config.request_timeout * 1000),
            **client_options(config),
        )

    async def __aenter__(self) -> Self:
        # Why it failed is only in the client's log.
        log, heard = logging.getLogger("aiokafka"), _LastLine()
        log.addHandler(heard)
        try:
            await self._client.bootstrap()
        except (kafka_errors.KafkaError, OSError) as error:
            await self._client.close()
            raise GroupsError(
                f"no broker answers at {self._servers} ({heard.line or error}): check "
                "--bootstrap-servers, --security-protocol and the --sasl- options"
            ) from error
        finally:
            log.removeHandler(heard)
        if not self.brokers():
            # What a broker answers whose challenge to a token was not understood.
            await self._client.close()
            raise GroupsError(
                f"the broker at {self._servers} tells nothing of the cluster: check the --sasl- "
                "options, with OAUTHBEARER the token"
            )
        return self

    async def __aexit__(self, *_exc: object) -> None:
        self._threads.stop()
        await self._client.close()

    def brokers(self) -> dict[int, str]:
        """Addresses of all brokers by their ids."""
        return {
            int(broker.nodeId): f"{broker.host}:{broker.port}"
            for broker in self._client.cluster.brokers()
        }

    async def coordinator(self, group: str) -> int:
        """The broker that coordinates a group."""
        try:
            async with asyncio.timeout(_COORDINATOR_WITHIN):
                while True:
                    try:
                        found = await self._client.coordinator_lookup(_GROUP_COORDINATOR, group)
                        return cast("int", found)
                    except kafka_errors.KafkaError as error:
                        if not error.retriable:
                            raise GroupsError(
                                f"the coordinator of group {group!r} cannot be found: {error}"
                            ) from error
                    await asyncio.sleep(_RETRY_AFTER)
        except TimeoutError as error:
            raise GroupsError(
                f"group {group!r} has no coordinator: its broker is not available"
            ) from error

    async def ask(self, node: int, request: KioRequest[Answer]) -> Answer:
        """The answer of one broker."""
        try:
            received: Answer | GroupsError | LargeAnswer[Answer]
            received = await self._client.send(node, request)
        except (kafka_errors.KafkaError, OSError, TimeoutError) as error:
            where = self.brokers().get(node, str(node))
            raise GroupsError(f"the broker at {where} does not answer: {error!r}") from error
        answer: Answer | GroupsError
        if isinstance(received, LargeAnswer):
            answer = await self._threads.submit(received.decode)
        else:
            answer = received
        if isinstance(answer, GroupsError):
            raise answer
        return answer

    async def anywhere(self, request: KioRequest[Answer]) -> Answer:
        """The answer of the first broker that gives one."""
        failure = GroupsError(f"no broker is known at {self._servers}")
        for node in sorted(self.brokers()):
            try:
                return await self.ask(node, request)
            except GroupsError as error:
                failure = error
        raise failure


def check(code: ErrorCode, what: str) -> None:
    """Raise GroupsError if ``code``, a broker's answer to ``what``, is an error."""
    if code is ErrorCode.none:
        return
    if code in (ErrorCode.group_authorization_failed, ErrorCode.cluster_authorization_failed):
        raise GroupsError(f"{what}: not authorized; grant DESCRIBE to this user")
    if code in _UNSETTLED:
        raise CoordinatorUnavailableError(f"{what}: the broker answers {code.name}")
    raise GroupsError(f"{what}: the broker answers {code.name}")
