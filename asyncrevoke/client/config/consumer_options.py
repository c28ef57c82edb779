"""The types of a consumer's options, and its keyword arguments."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias, TypedDict

from asyncrevoke.client.model import Record

if TYPE_CHECKING:
    import ssl

    from aiokafka.abc import AbstractTokenProvider

Processing: TypeAlias = Literal["at_least_once", "exactly_once"]
CommitMode: TypeAlias = Literal["processed", "ack", "manual"]
OrderBy: TypeAlias = Literal["key", "partition"] | Callable[[Record], Hashable]
NullKeys: TypeAlias = Literal["ordered", "unordered"]
OnUnconfirmedMembership: TypeAlias = Literal["continue", "pause"]
RevokeGaps: TypeAlias = Literal["process", "drop"]
OffsetReset: TypeAlias = Literal["earliest", "latest", "error"] | timedelta
IsolationLevel: TypeAlias = Literal["read_uncommitted", "read_committed"]
SecurityProtocol: TypeAlias = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
SaslMechanism: TypeAlias = Literal[
    "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "GSSAPI", "OAUTHBEARER"
]
ValueAs: TypeAlias = Literal["bytes", "view"]
Compression: TypeAlias = Literal["none", "gzip", "snappy", "lz4", "zstd"]
GroupType: TypeAlias = Literal["consumer", "share"]
Acquire: TypeAlias = Literal["exact", "batches"]
GroupProtocol: TypeAlias = Literal["classic", "consumer", "auto"]


class OwnAssignor(Protocol):
    """An assignor that the user has written. Implemented by user classes.

    ``asyncrevoke.assignors.Assignor`` describes all methods that it needs.
    """

    @property
    def name(self) -> str:
        """The name in JoinGroup."""
        ...


class ProducerOptions(TypedDict, total=False):
    """The options of ``Producer(...)``, which ``Consumer(...)`` has too; see ``ConsumerConfig``."""

    bootstrap_servers: str | Sequence[str]
    client_id: str
    compression: Compression
    idempotent: bool
    request_timeout: float
    metadata_max_age: float
    close_timeout: float
    security_protocol: SecurityProtocol
    ssl_context: ssl.SSLContext | None
    sasl_mechanism: SaslMechanism
    sasl_plain_username: str | None
    sasl_plain_password: str | None
    sasl_scram_max_iterations: int
    sasl_kerberos_service_name: str
    sasl_kerberos_domain_name: str | None
    sasl_oauth_token_provider: AbstractTokenProvider | None


class ConsumerOptions(ProducerOptions, total=False):
    """The keyword arguments of ``Consumer(...)``, described at ``ConsumerConfig``."""

    group_id: str | None
    group_type: GroupType
    acquire: Acquire
    processing: Processing
    transaction_interval: float
    transaction_timeout: float
    transactional_id_prefix: str | None
    commit_mode: CommitMode
    auto_delay_revoke: bool
    concurrency: int
    order_by: OrderBy | None
    null_keys: NullKeys
    max_in_flight: int
    commit_interval: float
    completion_map: int
    group_instance_id: str | None
    client_rack: str | None
    group_protocol: GroupProtocol
    server_assignor: str | None
    assignors: Sequence[str | OwnAssignor]
    auto_offset_reset: OffsetReset
    isolation_level: IsolationLevel
    max_poll_records: int
    fetch_min_bytes: int
    fetch_max_wait: float
    fetch_max_bytes: int
    max_partition_fetch_bytes: int
    buffer_memory: int
    value_as: ValueAs
    session_timeout: float
    heartbeat_interval: float
    on_unconfirmed_membership: OnUnconfirmedMembership
    rebalance_timeout: float
    max_poll_interval: float
    revoke_timeout: float | None
    revoke_gaps: RevokeGaps
    delayed_revoke_poll_interval: float
    heartbeat_thread: bool
    allow_missing_topics: bool
