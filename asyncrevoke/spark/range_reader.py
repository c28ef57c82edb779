"""Reads the records of one range, and no others."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Self, cast

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka import errors as kafka_errors

from asyncrevoke.model import Record
from asyncrevoke.spark.errors import DataLossError, StalledReadError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aiokafka.structs import ConsumerRecord

    from asyncrevoke.config import ConsumerConfig
    from asyncrevoke.spark.offsets import OffsetRange

MOST_RECORDS = 1000
FETCH_BYTES = 8 * 1024 * 1024
NO_PROGRESS_TIMEOUT = 120.0

# How long one wait for records may take before the position is looked at again.
_STEP = 1.0


class RangeReader:
    """An async context manager; :meth:`read` gives what comes next until the range ends.

    Moves on by position, not by the last record: offsets of aborted records, of compaction and of
    control markers are none. ``config`` gives addresses, security and the isolation level, and
    never a group: nothing is committed. Where the log does not have an offset that is asked for,
    DataLossError is raised; if nothing comes for ``no_progress_timeout`` seconds, StalledReadError.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        wanted: OffsetRange,
        *,
        no_progress_timeout: float = NO_PROGRESS_TIMEOUT,
    ) -> None:
        self._range = wanted
        self._partition = TopicPartition(wanted.topic, wanted.partition)
        self._patience = no_progress_timeout
        self.position = wanted.start
        # Half typed.
        self._consumer: Any = AIOKafkaConsumer(
            bootstrap_servers=",".join(config.bootstrap_servers),
            client_id=config.client_id,
            group_id=None,
            enable_auto_commit=False,
            auto_offset_reset="none",
            isolation_level=config.isolation_level,
            fetch_max_bytes=max(config.fetch_max_bytes, FETCH_BYTES),
            max_partition_fetch_bytes=FETCH_BYTES,
            check_crcs=True,
            request_timeout_ms=int(config.request_timeout * 1000),
            security_protocol=config.security_protocol,
            ssl_context=config.ssl_context,
            sasl_mechanism=config.sasl_mechanism,
            sasl_plain_username=config.sasl_plain_username,
            sasl_plain_password=config.sasl_plain_password,
            sasl_kerberos_service_name=config.sasl_kerberos_service_name,
            sasl_kerberos_domain_name=config.sasl_kerberos_domain_name,
            sasl_oauth_token_provider=config.sasl_oauth_token_provider,
        )

    async def __aenter__(self) -> Self:
        try:
            await self._consumer.start()
        except BaseException:
            await self._consumer.stop()
            raise
        self._consumer.assign([self._partition])
        self._consumer.seek(self._partition, self._range.start)
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self._consumer.stop()

    @property
    def ended(self) -> bool:
        """Whether all of the range was read."""
        return self.position >= self._range.end

    async def read(self, most: int = MOST_RECORDS) -> Sequence[ConsumerRecord[bytes, bytes]]:
        """The next records, at most so many; empty only at the end of the range.

        If cancelled, no record is gone.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._patience
        while not self.ended:
            records = await self._step(most)
            position = cast("int", await self._consumer.position(self._partition))
            if position > self.position:
                self.position = position
                deadline = loop.time() + self._patience
            if records:
                if records[-1].offset >= self._range.end:
                    return [each for each in records if each.offset < self._range.end]
                return records
            if loop.time() > deadline:
                raise StalledReadError(self._stalled())
        return ()

    async def _step(self, most: int) -> Sequence[ConsumerRecord[bytes, bytes]]:
        try:
            found = await self._consumer.getmany(
                self._partition, timeout_ms=int(min(_STEP, self._patience) * 1000), max_records=most
            )
        except kafka_errors.OffsetOutOfRangeError as error:
            raise DataLossError(
                f"{self._name} has no offset {self.position} any more (or not yet, if the topic "
                "was made anew): retention was faster than this reader; plan the ranges again"
            ) from error
        return cast("Sequence[ConsumerRecord[bytes, bytes]]", found.get(self._partition, ()))

    def _stalled(self) -> str:
        return (
            f"{self._name} stands at offset {self.position} of {self._range.end} for "
            f"{self._patience:g} s: either no broker gives its records (see the log), or a "
            "transaction is open there; plan ends with resolve_ranges(), which stops before it"
        )

    @property
    def _name(self) -> str:
        return f"{self._range.topic}-{self._range.partition}"


def to_record(given: ConsumerRecord[bytes, bytes]) -> Record:
    """As handlers know it."""
    return Record(
        given.topic,
        given.partition,
        given.offset,
        given.timestamp,
        given.timestamp_type,
        given.key,
        given.value,
        tuple(given.headers),
    )
