"""Every option of a consumer: its default, its unit, and its hazard.

Times are seconds (floats), sizes are bytes. The constructor raises
:class:`~asyncrevoke.errors.ConfigError` for an invalid option; the message names the fix.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, cast, get_args

from asyncrevoke.client.config import checks
from asyncrevoke.client.config.consumer_options import (
    Acquire,
    CommitMode,
    Compression,
    ConsumerOptions,
    GroupProtocol,
    GroupType,
    IsolationLevel,
    NullKeys,
    OffsetReset,
    OnUnconfirmedMembership,
    OrderBy,
    OwnAssignor,
    Processing,
    RevokeGaps,
    SaslMechanism,
    SecurityProtocol,
    ValueAs,
)
from asyncrevoke.client.config.consumer_protocol import reject_classic_options
from asyncrevoke.client.config.exactly_once import check_exactly_once, check_exactly_once_group
from asyncrevoke.client.config.names import explain_unknown, old_name
from asyncrevoke.client.config.security import DEFAULT_MECHANISM, check_security
from asyncrevoke.client.config.share_groups import share_group_options
from asyncrevoke.client.errors import ConfigError

if TYPE_CHECKING:
    import ssl
    from collections.abc import Sequence

    from aiokafka.abc import AbstractTokenProvider


_MIB = 1024 * 1024


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig:
    """All options, validated. Raises :class:`~asyncrevoke.errors.ConfigError`."""

    bootstrap_servers: str | Sequence[str] = "localhost:9092"
    """Addresses of some brokers, as ``"host:port,host:port"`` or as a sequence. The consumer
    connects to one of these, and learns the others from it. The default port is 9092, and an IPv6
    address is in brackets. Of a name with several IP addresses the first that answers is used: each
    has a head start of 250 ms before the next (RFC 8305), and one that has not answered is tried
    last the next time. The consumer uses these addresses again when no known broker responds
    (KIP-899), when requests for metadata have failed for 5 minutes, or when a broker requires it
    (KIP-1102). Hazard: with a single address, the consumer cannot start while that broker is down;
    list two or three."""

    group_id: str | None = None
    """The consumer group. With None there is no group: nothing is committed, and the consumer reads
    the partitions that ``assign`` is called with, or all partitions of its topics."""

    group_type: GroupType = "consumer"
    """``"consumer"``: each partition has one owner in the group, which commits offsets. ``"share"``
    (KIP-932, Apache Kafka 4.2): a queue of which any member gets any record under a lock, without
    order; it needs handlers. Hazard: a group id has one type for good, and brokers archive a record
    after a number of deliveries, 5 by default."""

    acquire: Acquire = "exact"
    """What a member of a share group acquires. ``"exact"``: records that its handlers can start at
    once. ``"batches"``: whole record batches, for handlers of a few milliseconds: each batch is
    sent once. Hazard of ``"batches"``: each stop costs the unstarted records a delivery, and one
    response may exceed ``max_in_flight``."""

    processing: Processing = "at_least_once"
    """``"at_least_once"``: a record is done when its results are acknowledged, and after a crash
    some results are published again. ``"exactly_once"``: results and offsets are written in
    transactions (KIP-447), so that readers with ``read_committed`` see the results of each record
    once; it implies ``isolation_level="read_committed"``. Hazard of ``"exactly_once"``: it covers
    Kafka alone, and a handler may still be called twice for a record, so writes to databases need
    idempotency."""

    transaction_interval: float = 0.1
    """With ``processing="exactly_once"``: seconds between transactions, and so the longest that
    results wait. Nothing is sent if no record is done, and one transaction is open at a time.
    Hazard of a short interval: a transaction takes a few milliseconds of the brokers and writes a
    marker into each partition that it has touched."""

    transaction_timeout: float = 10.0
    """With ``processing="exactly_once"``: seconds after which the coordinator aborts the
    transaction of a process that was killed, at most ``transaction.max.timeout.ms`` of the brokers.
    The coordinator looks every 10 s. Until then readers with ``read_committed`` wait, and so does
    the next owner of the partitions. A running consumer aborts a transaction that is not written
    within nine tenths of it, and the next one has half of the records."""

    transactional_id_prefix: str | None = None
    """With ``processing="exactly_once"``: how transactional ids begin, for access rules. None: the
    ``group_id``. A static member adds its ``group_instance_id``, any other a random id."""

    commit_mode: CommitMode = "processed"
    """When a record is done, so that its offset can be committed. ``"processed"``: when its handler
    has ended; in a loop, when you request the next batch. ``"ack"``: when you call ``ack(record)``.
    ``"manual"``: when you commit its offset. Hazard of ``"processed"``: if a loop requests the next
    batch before its work has ended (by a prefetching wrapper, or with tasks of your own),
    unfinished records count as done; use ``"ack"`` or a task group then."""

    auto_delay_revoke: bool = True
    """Whether a revocation waits for the records in flight of its partition. Hazard of False: the
    next owner processes these records again, unless you call ``delay_revoke``."""

    concurrency: int = 64
    """How many handler calls of this consumer may run at the same time."""

    order_by: OrderBy | None = "key"
    """Which records of a partition are handled one after the other, in offset order: those with the
    same ``"key"``, all of the ``"partition"``, or none (None). Or a sync function of the record:
    those for which it returns the same hashable value; None counts as a null key. Records of
    different partitions have no order. Hazard of None: two records of one key may be handled in
    either order."""

    null_keys: NullKeys = "ordered"
    """Whether records without a key are handled one after the other in each partition
    (``"ordered"``), or in any order (``"unordered"``). Hazard of ``"ordered"``: for a topic without
    keys, one handler per partition runs at a time."""

    max_in_flight: int = 2000
    """The most records that are delivered and not done. When there are so many, delivery and
    fetching wait. With several partitions, a quarter of what exceeds ``concurrency`` is reserved
    for them in equal parts, so that a partition with few such records does not wait for the backlog
    of others. Hazard: after a crash, so many records are handled again, and up to as many completed
    ones for which ``completion_map`` has no room."""

    commit_interval: float = 0.2
    """Seconds between commits. Nothing is sent if no offset has changed, and at most one commit is
    in flight. Hazard: after a crash, the records of this time are handled again. Commits are load
    on the coordinator: use 1.0 for a group with hundreds of members and thousands of partitions."""

    completion_map: int = 512
    """The most characters of commit metadata, up to 4096, that list the records that are done
    *beyond* the committed offset, so that the next owner does not handle them again. Brokers accept
    4096 by default (``offset.metadata.max.bytes``). 0 disables it: this member then writes no list
    and ignores those of others, except with ``processing="exactly_once"``. A list of another member
    is kept in full, even above this limit. After the first list that a broker has not kept, as
    Tansu 0.6, none is written any more. Hazard: with 0, after a crash all records beyond an
    unfinished one are repeated; with 4096, a commit stores up to so many characters for each
    partition."""

    client_id: str = "asyncrevoke"
    """The name of this client in the brokers' logs, quotas and metrics."""

    group_instance_id: str | None = None
    """The id for static membership (KIP-345): a restart within ``session_timeout`` causes no
    rebalance. Hazard: two running consumers with the same id fence each other. If a consumer never
    returns, nobody reads its partitions for ``session_timeout``."""

    client_rack: str | None = None
    """The rack of this client. Records are fetched from a replica in this rack (KIP-392), and
    partitions with such a replica are preferred in assignments (KIP-881). While that replica is
    unknown, does not respond or rejects fetches, records are fetched from the leader."""

    group_protocol: GroupProtocol = "classic"
    """The rebalance protocol: ``"classic"``, where a member assigns; ``"consumer"`` (KIP-848,
    Apache Kafka 4.0 and later), where the brokers assign; or ``"auto"``, which uses KIP-848 if the
    brokers support it, and the classic protocol otherwise. Hazard of ``"consumer"``: the broker
    sets the session timeout, and fences a member that has not released a revoked partition within
    ``rebalance_timeout``; the member loses all its partitions. Hazard of ``"auto"``: the first
    member that joins by KIP-848 converts a running classic group. Members that have neither a
    common assignor nor KIP-848 cannot join it any more."""

    server_assignor: str | None = None
    """The broker's assignor that this member prefers under KIP-848: ``"uniform"``, ``"range"``, or
    one that the administrator has installed. None leaves the choice to the broker. If members
    differ, the broker uses the one that most members name. Not for ``group_protocol="classic"``."""

    assignors: Sequence[str | OwnAssignor] = ("cooperative-sticky",)
    """The assignors that this member supports under the classic protocol, the preferred one first,
    with Java's names: ``range``, ``roundrobin``, ``sticky``, ``cooperative-sticky``; or assignors
    of your own. All must support a common rebalance protocol. Hazard: all members of a group need a
    common assignor, and changing it takes two rolling restarts (KIP-429). With ``range``,
    ``roundrobin`` or ``sticky``, all partitions are released at each rebalance."""

    compression: Compression = "none"
    """How record batches are compressed: results of handlers, and what ``consumer.producer`` sends.
    A record that its topic rejects as too large is sent again compressed with zstd, or with gzip
    where brokers refuse zstd. If brokers refuse this compression, records fail. Hazard: it takes
    CPU time on the event loop, gzip the most, lz4 the least."""

    idempotent: bool = True
    """Whether results, dead letters and what ``consumer.producer`` sends are written with
    idempotence (KIP-98), so that a write that is sent again is stored once. False is for brokers
    that offer no InitProducerId. Hazard of False: a record may be written twice when the response
    to its request is lost. The order of records in a partition is kept in both cases."""

    auto_offset_reset: OffsetReset = "earliest"
    """Where to start if the group has no committed offset, or the position is outside the log:
    ``"earliest"``, ``"latest"``, ``timedelta(hours=1)`` for the first record of the last hour, or
    ``"error"`` to raise ``NoOffsetError`` or ``OffsetOutOfRangeError``. Partitions and topics that
    are created after the subscription to them or to a pattern began start at their first record,
    except with ``"error"``. Hazard of ``"latest"`` and of a timedelta: records can be skipped if
    retention deletes the position; or if a new partition is first assigned to a member that
    subscribed after it was created, for example during a restart, or by a ``BrokerPattern``."""

    isolation_level: IsolationLevel = "read_uncommitted"
    """``"read_uncommitted"`` delivers all records. ``"read_committed"`` leaves out those of aborted
    transactions, and delivers records up to the last stable offset, where the oldest open
    transaction begins. Hazard of ``"read_committed"``: a transaction that stays open blocks the
    partition until the transaction timeout."""

    max_poll_records: int = 500
    """The most records that a poll returns, shared fairly between partitions (KIP-41). Handlers get
    up to four times as many if they are small, but at most a quarter of ``max_in_flight``."""

    fetch_min_bytes: int = 1
    """Bytes that a broker collects before it responds to a fetch. Hazard: with a high value,
    records of topics with few records wait for ``fetch_max_wait``."""

    fetch_max_wait: float = 0.5
    """Seconds that a broker waits for ``fetch_min_bytes``. Must be less than
    ``request_timeout``."""

    fetch_max_bytes: int = checks.FETCH_MAX_BYTES
    """The most bytes of a fetch response. If the first record batch alone is larger, it is
    returned."""

    max_partition_fetch_bytes: int = _MIB
    """The most bytes of one partition in a fetch response. If the first record batch alone is
    larger, it is returned."""

    buffer_memory: int = 64 * _MIB
    """The most bytes of fetched and undelivered records of all partitions. Hazard: the process
    needs more memory than this, because one fetch is always allowed, and compressed batches grow
    when they are decompressed. Decompressed batches above a megabyte take up to half of this value
    together, or as much as one of them needs."""

    value_as: ValueAs = "bytes"
    """The type of ``Record.value``: ``"bytes"``, or ``"view"`` for a read-only memoryview, which
    avoids copying values of 32 KiB or more. Hazard of ``"view"``: such a view keeps the whole fetch
    response in memory, and this counts in ``buffer_memory``; copy what you keep."""

    session_timeout: float = 45.0
    """Seconds without a heartbeat after which the coordinator removes the member. With
    ``group_protocol="consumer"`` the broker decides it: leave it out. Hazard: with a short timeout,
    a pause of the event loop or of the machine costs the partitions. The broker has limits of its
    own (6 s to 30 min by default)."""

    heartbeat_interval: float = 1.0
    """Seconds between heartbeats, at most half of ``session_timeout``; under KIP-848, at most the
    interval that the broker asks for. The response to a heartbeat says that the group rebalances,
    so a longer interval makes rebalances slower."""

    on_unconfirmed_membership: OnUnconfirmedMembership = "pause"
    """What to do if no heartbeat was confirmed for ``session_timeout``, because the coordinator is
    unreachable or the event loop was blocked. ``"pause"`` stops delivery until the membership is
    confirmed, also of records that handlers, task groups and ``records()`` hold; ``"continue"``
    delivers fetched records. Under KIP-848 nine heartbeat intervals of the broker are used instead
    of the session timeout, at most 45 s. Hazard of ``"continue"``: other members may own the
    partitions and process the same records. Hazard of ``"pause"``: an outage of the coordinator
    alone stops processing."""

    rebalance_timeout: float = 300.0
    """Seconds that the group waits for this member to rejoin; under KIP-848, to release a revoked
    partition. With an eager assignor, releasing the partitions may take this long. Hazard: while an
    eager member drains, the whole group waits."""

    max_poll_interval: float = 300.0
    """Seconds that your loop may take for a batch, before it requests the next one. After that this
    member leaves the group. Time spent waiting inside the library does not count, and handlers have
    no such limit. With ``records()`` the time counts from each record, with an error of up to a
    sixteenth. Hazard: a slower loop body loses all partitions, and the batch is processed again."""

    revoke_timeout: float | None = None
    """The most seconds that a revocation may be delayed, at most ``rebalance_timeout``; after that,
    its partition is lost. None waits as long as the protocol allows. Hazard: longer work is
    repeated by the next owner."""

    revoke_gaps: RevokeGaps = "process"
    """What a revocation or a stop does with gaps: records that have not started, while a later
    record of their partition is done or running. If all members are known to read completion maps,
    and the map has room, gaps are dropped, and the next owner handles just these. Otherwise
    (another client is a member or the leader, KIP-848, the assignor ``sticky`` or one of your own,
    ``completion_map=0``, a partition with a lifespan) they are handled before the release
    (``"process"``), or dropped (``"drop"``). Hazard of ``"process"``: if there is a slow key among
    them, the next owner waits for all records of that key. Hazard of ``"drop"``: the next owner
    handles completed records again."""

    delayed_revoke_poll_interval: float = 0.25
    """While you delay a revocation with ``delay_revoke``, a poll returns after at most this many
    seconds, so that the loop can renew the delay."""

    close_timeout: float = 25.0
    """The most seconds that closing takes, from the signal, stop, failure or close that starts it,
    and that unsubscribing takes. The last 5 s (or the second half, if that is shorter) are reserved
    for the final commit and for leaving. When they begin, running handlers are cancelled; when half
    of them is over, partitions without an acknowledged final commit are lost, and the member
    leaves. Hazard: keep it at least a second below the grace period of whatever stops the process
    (Kubernetes: 30 s)."""

    request_timeout: float = 40.0
    """Seconds that a broker has to respond, and the most that opening a connection takes. A
    connection on which nothing is received is replaced sooner; a JoinGroup may take longer."""

    heartbeat_thread: bool = True
    """Whether a thread sends heartbeats while the event loop is blocked, over its own connection
    and for at most ``max_poll_interval``; a warning names the line that blocks. Hazard: this keeps
    only the membership; commits and your own code on the event loop wait."""

    metadata_max_age: float = 180.0
    """Seconds after which metadata are requested again. So new partitions, and new topics that
    match a pattern, are found after at most this time. Hazard of 240 or more: Azure Event Hubs
    closes connections without a request for 240 s, so each request for metadata opens another."""

    allow_missing_topics: bool = False
    """Whether the consumer counts as ready (``probe``, ``/readyz``) while a subscribed topic does
    not exist. In both cases it reads the other topics, and this one once it is created."""

    security_protocol: SecurityProtocol = "PLAINTEXT"
    """``"SSL"`` encrypts connections (TLS), ``"SASL_PLAINTEXT"`` authenticates the client,
    ``"SASL_SSL"`` does both, and ``"PLAINTEXT"`` neither. Hazard of ``"SASL_PLAINTEXT"`` with
    mechanism PLAIN: the password is sent unencrypted."""

    ssl_context: ssl.SSLContext | None = dataclasses.field(default=None, repr=False)
    """The certificates to trust, and the client's own, for ``SSL`` and ``SASL_SSL``. None uses
    ``ssl.create_default_context()``, which trusts the system's."""

    sasl_mechanism: SaslMechanism = DEFAULT_MECHANISM
    """How the client authenticates, for ``SASL_PLAINTEXT`` and ``SASL_SSL``. GSSAPI needs the
    package ``gssapi``."""

    sasl_plain_username: str | None = None
    """The user, for PLAIN and SCRAM."""

    sasl_plain_password: str | None = dataclasses.field(default=None, repr=False)
    """The password, for PLAIN and SCRAM. No repr and no error shows it."""

    sasl_scram_max_iterations: int = checks.SCRAM_MAX_ITERATIONS
    """How many iterations of its hash a broker may require for a SCRAM password, at least 4096;
    Apache Kafka allows at most 16384. If a broker requires more, authentication fails. Hazard of a
    high value: each iteration takes 2 µs of the event loop's time for each connection."""

    sasl_kerberos_service_name: str = "kafka"
    """The name of the brokers' Kerberos service, for GSSAPI: the first part of their principal."""

    sasl_kerberos_domain_name: str | None = None
    """The host name in the brokers' principal, for GSSAPI; None: that of the broker's address."""

    sasl_oauth_token_provider: AbstractTokenProvider | None = dataclasses.field(
        default=None, repr=False
    )
    """An object that returns access tokens, for OAUTHBEARER: its ``async def token(self) -> str``
    is called for each connection, and ``extensions(self) -> dict[str, str]`` if it has that, as an
    ``aiokafka.abc.AbstractTokenProvider``. It runs on the consumer's event loop."""

    @classmethod
    def from_options(cls, **options: object) -> ConsumerConfig:
        """Make a config from options. The ConfigError for a wrong name has the right one."""
        for name, value in options.items():
            if name in _DEFAULTS:
                continue
            raise ConfigError(old_name(name, value) or explain_unknown(name, _DEFAULTS))
        if options.get("group_type") == "share":
            options = share_group_options(options)
        elif "acquire" in options:
            raise ConfigError('acquire is for group_type="share": leave it out')
        check_exactly_once(options)
        return cls(**cast("ConsumerOptions", options))

    def __post_init__(self) -> None:
        for name, check in _CHECKS.items():
            object.__setattr__(self, name, check(name, getattr(self, name)))
        self._check_group()
        self._set_exactly_once()
        self._check_times()
        if self.security_protocol.endswith("SSL") and self.ssl_context is None:
            import ssl

            object.__setattr__(self, "ssl_context", ssl.create_default_context())
        check_security(self)

    @property
    def addresses(self) -> tuple[tuple[str, int], ...]:
        """The bootstrap servers as (host, port); an IPv6 host without its brackets."""
        return tuple(checks.parse_address(server) for server in self.bootstrap_servers)

    def _check_group(self) -> None:
        if self.group_type == "share" and self.order_by is not None:
            raise ConfigError(
                "records of a share group have no order: use order_by=None, or "
                "ConsumerConfig.from_options(...), which has the defaults of share groups"
            )
        if self.group_instance_id is not None and self.group_id is None:
            raise ConfigError(
                "group_instance_id is for members of a group: give a group_id, or leave it out"
            )
        if self.group_protocol == "classic" and self.server_assignor is not None:
            raise ConfigError(
                "server_assignor is for assignments made by the broker: use "
                'group_protocol="consumer", or choose by assignors=(...)'
            )
        if self.group_protocol == "consumer":
            reject_classic_options(self)

    @property
    def exactly_once(self) -> bool:
        """Whether results and offsets are written in transactions."""
        return self.processing == "exactly_once"

    def _set_exactly_once(self) -> None:
        if not self.exactly_once:
            return
        check_exactly_once_group(self)
        object.__setattr__(self, "isolation_level", "read_committed")
        object.__setattr__(self, "commit_interval", self.transaction_interval)

    def _check_times(self) -> None:
        if self.heartbeat_interval * 2 > self.session_timeout:
            raise ConfigError(
                f"heartbeat_interval of {self.heartbeat_interval:g} s is more than half of the "
                f"session_timeout of {self.session_timeout:g} s, so one late heartbeat would cost "
                f"the membership: use heartbeat_interval={self.session_timeout / 3:g}, or a longer "
                "session_timeout"
            )
        if self.revoke_timeout is not None and self.revoke_timeout > self.rebalance_timeout:
            raise ConfigError(
                f"revoke_timeout of {self.revoke_timeout:g} s is more than the rebalance_timeout "
                f"of {self.rebalance_timeout:g} s, when the group stops waiting: raise "
                "rebalance_timeout, or lower revoke_timeout, or leave it out"
            )
        if self.fetch_max_wait >= self.request_timeout:
            raise ConfigError(
                f"fetch_max_wait of {self.fetch_max_wait:g} s must be less than the "
                f"request_timeout of {self.request_timeout:g} s, or every quiet fetch would time "
                "out: lower fetch_max_wait, or raise request_timeout"
            )


_CHECKS: dict[str, checks.Check] = {
    "bootstrap_servers": checks.addresses,
    "group_id": checks.optional(checks.text),
    "group_type": checks.choice(*get_args(GroupType)),
    "acquire": checks.choice(*get_args(Acquire)),
    "processing": checks.choice(*get_args(Processing)),
    "transaction_interval": checks.seconds(most=checks.HOUR),
    "transaction_timeout": checks.seconds(most=checks.DAY),
    "transactional_id_prefix": checks.optional(checks.text),
    "commit_mode": checks.choice(*get_args(CommitMode)),
    "auto_delay_revoke": checks.flag,
    "concurrency": checks.count(),
    "order_by": checks.optional(checks.order),
    "null_keys": checks.choice(*get_args(NullKeys)),
    "max_in_flight": checks.count(),
    "commit_interval": checks.seconds(most=checks.HOUR),
    "completion_map": checks.count(least=0, most=4096),
    "client_id": checks.text,
    "group_instance_id": checks.optional(checks.text),
    "client_rack": checks.optional(checks.text),
    "group_protocol": checks.choice(*get_args(GroupProtocol)),
    "server_assignor": checks.optional(checks.text),
    "assignors": checks.assignors,
    "auto_offset_reset": checks.offset_reset,
    "isolation_level": checks.choice(*get_args(IsolationLevel)),
    "max_poll_records": checks.count(),
    "fetch_min_bytes": checks.count(least=0),
    "fetch_max_wait": checks.seconds(zero=True),
    "fetch_max_bytes": checks.count(),
    "max_partition_fetch_bytes": checks.count(),
    "buffer_memory": checks.count(most=1 << 60),
    "value_as": checks.choice(*get_args(ValueAs)),
    "session_timeout": checks.seconds(most=checks.HOUR),
    "heartbeat_interval": checks.seconds(),
    "on_unconfirmed_membership": checks.choice(*get_args(OnUnconfirmedMembership)),
    "rebalance_timeout": checks.seconds(most=checks.DAY),
    "max_poll_interval": checks.seconds(most=checks.DAY),
    "revoke_timeout": checks.optional(checks.seconds(most=checks.DAY)),
    "revoke_gaps": checks.choice(*get_args(RevokeGaps)),
    "delayed_revoke_poll_interval": checks.seconds(most=checks.HOUR),
    "close_timeout": checks.seconds(zero=True, most=checks.DAY),
    "request_timeout": checks.seconds(most=checks.HOUR),
    "heartbeat_thread": checks.flag,
    "metadata_max_age": checks.seconds(most=checks.DAY),
    "compression": checks.choice(*get_args(Compression)),
    "allow_missing_topics": checks.flag,
    "idempotent": checks.flag,
    "security_protocol": checks.choice(*get_args(SecurityProtocol)),
    "ssl_context": checks.optional(checks.tls_context),
    "sasl_mechanism": checks.choice(*get_args(SaslMechanism)),
    "sasl_plain_username": checks.optional(checks.text),
    "sasl_plain_password": checks.optional(checks.secret),
    "sasl_scram_max_iterations": checks.count(least=4096),
    "sasl_kerberos_service_name": checks.text,
    "sasl_kerberos_domain_name": checks.optional(checks.text),
    "sasl_oauth_token_provider": checks.optional(checks.token_provider),
}

_DEFAULTS = tuple(field.name for field in dataclasses.fields(ConsumerConfig))
