"""Every option of a consumer: its default, its unit, and what goes wrong with it.

Seconds are floats, sizes are bytes. An option that cannot work is refused when the consumer is
constructed, by a :class:`~asyncrevoke.errors.ConfigError` whose sentence names the fix.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias, TypedDict, cast

from asyncrevoke.config import checks
from asyncrevoke.config.names import explain_unknown, old_name
from asyncrevoke.config.security_checks import check_security
from asyncrevoke.errors import ConfigError
from asyncrevoke.model import Record

if TYPE_CHECKING:
    import ssl

    from aiokafka.abc import AbstractTokenProvider

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
GroupProtocol: TypeAlias = Literal["classic", "consumer", "auto"]

_MIB = 1024 * 1024


class OwnAssignor(Protocol):
    """What the options see of an assignor of the user's own: its name. All that it needs is
    described at ``asyncrevoke.core.assignors.Assignor``."""

    @property
    def name(self) -> str:
        """The name that goes into JoinGroup."""
        ...


class ConsumerOptions(TypedDict, total=False):
    """What ``Consumer(...)`` takes by name; each is described at :class:`ConsumerConfig`."""

    bootstrap_servers: str | Sequence[str]
    group_id: str | None
    commit_mode: CommitMode
    auto_delay_revoke: bool
    concurrency: int
    order_by: OrderBy | None
    null_keys: NullKeys
    max_in_flight: int
    commit_interval: float
    completion_map: int
    client_id: str
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
    close_timeout: float
    request_timeout: float
    heartbeat_thread: bool
    metadata_max_age: float
    compression: Compression
    allow_missing_topics: bool
    security_protocol: SecurityProtocol
    ssl_context: ssl.SSLContext | None
    sasl_mechanism: SaslMechanism
    sasl_plain_username: str | None
    sasl_plain_password: str | None
    sasl_scram_max_iterations: int
    sasl_kerberos_service_name: str
    sasl_kerberos_domain_name: str | None
    sasl_oauth_token_provider: AbstractTokenProvider | None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig:
    """All options, validated. Raises :class:`~asyncrevoke.errors.ConfigError`."""

    bootstrap_servers: str | Sequence[str] = "localhost:9092"
    """Addresses to begin with, ``"host:port,host:port"`` or a sequence; the port is 9092 if left
    out, and an IPv6 address is in brackets. They are used again when no known broker answers
    (KIP-899), when requests for metadata have failed for 5 minutes, or when a broker requires it
    (KIP-1102). Hazard: with a single one, the consumer cannot start while that broker is down;
    name two or three. Normalised to a tuple."""

    group_id: str | None = None
    """The consumer group. None reads without a group: nothing is committed, and partitions come
    from ``assign`` or are all those of the topics."""

    commit_mode: CommitMode = "processed"
    """When a record counts: ``"processed"``, when the next step is asked for, or its handler ends;
    ``"ack"``, when ``ack(record)`` is called; ``"manual"``, when you commit it. Hazard of
    ``"processed"``: anything that asks ahead of the work (a prefetching wrapper, tasks of your
    own) makes records count that are not done; use ``"ack"`` or a task group for those."""

    auto_delay_revoke: bool = True
    """Whether a revoke waits by itself for what is in flight. Hazard of False: what is still
    running when the partition goes is repeated by its next owner, unless you call
    ``delay_revoke``."""

    concurrency: int = 64
    """Handlers running at once."""

    order_by: OrderBy | None = "key"
    """Which handlers wait for each other: those of one ``"key"``, of one ``"partition"``, or none
    (None); or a sync function of the record, for those of one result (any hashable value, None
    like a null key). Order holds within a partition, so records with one result must be in one
    partition. Hazard of None: two records of one key may be handled in either order."""

    null_keys: NullKeys = "ordered"
    """Records without a key share one lane per partition (``"ordered"``) or are handled in any
    order (``"unordered"``). Hazard of ``"ordered"``: a topic without keys runs one handler per
    partition at a time."""

    max_in_flight: int = 2000
    """Records taken and not finished; beyond it, delivery and fetching wait. With several
    partitions, a quarter of what it exceeds ``concurrency`` by is reserved in equal parts for those
    that have few such records: they do not wait behind the backlog of others. Hazard: after a crash
    so many are handled again, and up to as many finished ones that ``completion_map`` has no room
    for."""

    commit_interval: float = 0.2
    """Seconds between commits of what counts; nothing is sent while nothing does, and never more
    than one commit at a time. Hazard: after a crash, up to this much work is repeated; a group with
    hundreds of members and thousands of partitions may want 1.0, for its commits are load on the
    coordinator."""

    completion_map: int = 512
    """Characters of commit metadata, at most 4096, in which a commit tells which records are done
    *beyond* its offset, so that the next owner does not handle them again. Empty while nothing is.
    0 switches it off, and what others have told is ignored. What another member has told is kept
    whole, also if this member's limit is lower. Hazard: with 0, one record that never ends makes a
    crash repeat all that was done beyond it; with 4096, so much per partition and
    ``commit_interval`` is load on the broker."""

    client_id: str = "asyncrevoke"
    """The name by which brokers' logs, quotas and metrics know this client."""

    group_instance_id: str | None = None
    """A name for static membership (KIP-345): a restart within ``session_timeout`` causes no
    rebalance. Hazard: two running consumers with the same one fence each other, and the partitions
    of one that never returns stay unread for ``session_timeout``."""

    client_rack: str | None = None
    """Fetch from a replica in this rack where there is one (KIP-392), and be assigned partitions
    that have one there (KIP-881). While that replica is unknown, silent or refuses to serve, the
    leader is read."""

    group_protocol: GroupProtocol = "classic"
    """How the group is coordinated: by its members (``"classic"``), by the brokers (``"consumer"``,
    KIP-848, Apache Kafka 4.0 and later), or by the brokers where they can (``"auto"``, which falls
    back on the classic protocol). Hazard of ``"consumer"``: the broker decides on the session
    timeout, and fences a member, all its partitions included, that has not given up a partition
    within ``rebalance_timeout``. Hazard of ``"auto"``: the first member that joins by KIP-848
    converts a running classic group, and members that speak neither a common assignor nor KIP-848
    cannot join it any more."""

    server_assignor: str | None = None
    """The broker's assignor that the group is to use under KIP-848: ``"uniform"`` or ``"range"``,
    or one of its administrator's. None leaves it to the broker. If members differ, the one that
    most of them name is used."""

    assignors: Sequence[str | OwnAssignor] = ("cooperative-sticky",)
    """Assignors that this member offers, the preferred first, named as in Java: ``range``,
    ``roundrobin``, ``sticky``, ``cooperative-sticky``; or assignors of your own. All must speak a
    common rebalance protocol. Hazard: all members of a group must share one; changing it takes two
    rolling restarts (KIP-429). With ``range``, ``roundrobin`` or ``sticky`` among them, all
    partitions are released at each rebalance."""

    auto_offset_reset: OffsetReset = "earliest"
    """Where to read when the group has committed nothing, or the position is outside the log:
    ``"earliest"``, ``"latest"``, ``"error"``, or a timedelta back from now. Never used after an
    error. Hazard of ``"latest"``: records that arrive before the first commit can be skipped when
    retention removes the position."""

    isolation_level: IsolationLevel = "read_uncommitted"
    """``"read_committed"`` hides aborted transactions and stops at the last stable offset. Hazard
    of it: a producer that leaves a transaction open blocks the partition until its timeout."""

    max_poll_records: int = 500
    """The most records that a step returns, shared fairly between partitions (KIP-41)."""

    fetch_min_bytes: int = 1
    """Bytes that a broker collects before it answers a fetch. Hazard: a high value delays sparse
    topics by ``fetch_max_wait``."""

    fetch_max_wait: float = 0.5
    """Seconds that a broker waits for ``fetch_min_bytes``. Must be less than
    ``request_timeout``."""

    fetch_max_bytes: int = 50 * _MIB
    """Bytes of one fetch response; a first batch that is larger is still returned."""

    max_partition_fetch_bytes: int = _MIB
    """Bytes of one partition in a fetch response; a first batch that is larger is still
    returned."""

    buffer_memory: int = 64 * _MIB
    """Bytes of fetched and undelivered records, over all partitions. Hazard: compressed batches
    grow when they are opened (those above a megabyte up to half of this together, or one), and one
    fetch is always allowed, so leave headroom."""

    value_as: ValueAs = "bytes"
    """What ``Record.value`` is: ``"bytes"``, or ``"view"`` for a read-only memoryview, which saves
    the copy of values of 32 KiB or more. Hazard of ``"view"``: such a view keeps the whole fetch
    response in memory, counted in ``buffer_memory``; copy what you keep."""

    session_timeout: float = 45.0
    """Seconds without a heartbeat after which the group takes the partitions away. Hazard: short
    ones lose partitions at a pause of the event loop or the machine; the broker has limits of its
    own (6 s to 30 min by default)."""

    heartbeat_interval: float = 1.0
    """Seconds between heartbeats; members learn of a rebalance by them, so joins are as slow as
    they are. At most half of ``session_timeout``."""

    on_unconfirmed_membership: OnUnconfirmedMembership = "pause"
    """What to do while no heartbeat was answered for ``session_timeout``, because the coordinator
    cannot be reached or the event loop was blocked: ``"pause"`` until the membership is confirmed,
    or ``"continue"`` to deliver what was fetched. While it pauses, handlers, task groups and
    ``records()`` begin with nothing that they hold either; a batch that your loop has cannot be
    taken back. The membership may still hold: a coordinator that has moved grants a new session.
    Hazard of ``"continue"``: others may have the partitions by then, and work on the same records.
    Hazard of ``"pause"``: an outage of the coordinator alone stops the work. With KIP-848, brokers
    do not report their session timeout: nine of their heartbeat intervals are taken for it, as by
    Kafka's defaults, and 45 s at most."""

    rebalance_timeout: float = 300.0
    """Seconds that the group waits for this member to rejoin, hence the most that giving
    partitions up may take with an eager assignor. Hazard: while an eager member drains, the whole
    group waits."""

    max_poll_interval: float = 300.0
    """Seconds that the loop body may keep the iterator waiting before this member leaves the group
    (time spent waiting inside the library does not count). With ``records()`` they count from the
    last record that was asked for, up to a sixteenth more. Hazard: a body that is slower, for
    example by doing all of a large batch one by one, loses all partitions and repeats the
    batch."""

    revoke_timeout: float | None = None
    """Seconds after which a delayed revoke ends with the partition being lost; None waits as long
    as the protocol allows. At most ``rebalance_timeout``. Hazard: work that takes longer is
    repeated by the next owner."""

    revoke_gaps: RevokeGaps = "process"
    """What a revoke does with records that no handler has started, below others of their partition
    that are done or running. If every member of the group is known to read completion maps, and the
    map has room, they are dropped, and the next owner handles them and nothing else. Otherwise (a
    member or the leader is another client, KIP-848, ``completion_map=0``) they are handled before
    the partition is released (``"process"``), or they are dropped (``"drop"``). Hazard of
    ``"process"``: the next owner waits for all records of a slow key among them. Hazard of
    ``"drop"``: the next owner handles records again that are done."""

    delayed_revoke_poll_interval: float = 0.25
    """While a revoke is delayed by hand, steps return at least this often (seconds), so that the
    loop can renew the delay."""

    close_timeout: float = 25.0
    """Seconds that closing may take, from the signal, stop, failure or close that begins it, and
    that unsubscribing may take. The last 5 of them, or the second half if that is shorter, are
    kept: when they begin, running handlers are cancelled; at their half, partitions whose final
    commit is not acknowledged are lost, and the group is left. Hazard: keep it at least a second
    below the grace of whatever stops the process (Kubernetes: 30 s)."""

    request_timeout: float = 40.0
    """Seconds that a broker has to answer, and the most that opening a connection may take. A
    connection on which something is asked and nothing is received is noticed sooner: after a third
    of ``session_timeout`` (under KIP-848 after the heartbeat interval that the group asks for, 3 s
    at least) the broker is tried by a new connection, and after two thirds the old one is closed,
    or after two of its round trips if these take longer. A JoinGroup, which waits for other
    members, has ``session_timeout``, three quarters of ``rebalance_timeout`` at most, before it is
    sent again."""

    heartbeat_thread: bool = True
    """While the event loop is blocked, a thread sends the heartbeats, over a connection of its own
    and for ``max_poll_interval`` at most, and a warning names the line that blocks.
    Hazard: it keeps the membership and nothing else; commits and everything of your own stand
    still."""

    metadata_max_age: float = 300.0
    """Seconds after which topics and brokers are looked up again, by which new partitions and
    topics that match a pattern are found."""

    allow_missing_topics: bool = False
    """Whether the consumer is ready while a topic that it subscribes to does not exist. Either way
    it reads the others, and that one as soon as it is created."""

    compression: Compression = "none"
    """How the results of handlers, and what ``consumer.producer`` publishes, are compressed, by
    batch. Hazard: it takes the event loop's time, of gzip most, of lz4 least."""

    security_protocol: SecurityProtocol = "PLAINTEXT"
    """How to connect. Hazard of ``"SASL_PLAINTEXT"`` with mechanism PLAIN: the password travels in
    the clear."""

    ssl_context: ssl.SSLContext | None = dataclasses.field(default=None, repr=False)
    """For ``SSL`` and ``SASL_SSL``; None uses ``ssl.create_default_context()``."""

    sasl_mechanism: SaslMechanism = "PLAIN"
    """For ``SASL_PLAINTEXT`` and ``SASL_SSL``. GSSAPI needs the package ``gssapi``."""

    sasl_plain_username: str | None = None
    """For PLAIN and SCRAM."""

    sasl_plain_password: str | None = dataclasses.field(default=None, repr=False)
    """For PLAIN and SCRAM; never shown in a repr or an error."""

    sasl_scram_max_iterations: int = checks.SCRAM_MAX_ITERATIONS
    """Iterations that a broker may ask for when a SCRAM mechanism hashes the password, at least
    4096; credentials of Apache Kafka have at most 16384. A broker that asks for more is not
    authenticated at. Hazard of a high value: an iteration takes 2 µs of the event loop's time, for
    each connection, whichever broker asks."""

    sasl_kerberos_service_name: str = "kafka"
    """For GSSAPI."""

    sasl_kerberos_domain_name: str | None = None
    """For GSSAPI; None takes the broker's host name."""

    sasl_oauth_token_provider: AbstractTokenProvider | None = dataclasses.field(
        default=None, repr=False
    )
    """For OAUTHBEARER: an ``aiokafka.abc.AbstractTokenProvider``; it runs on the consumer's loop.
    A broker whose sessions end (KIP-368) gets a token of it for each connection that replaces
    another."""

    @classmethod
    def from_options(cls, **options: object) -> ConsumerConfig:
        """Make a config of options by name; a wrong or old name is answered with the right one."""
        for name, value in options.items():
            if name in _DEFAULTS:
                continue
            raise ConfigError(old_name(name, value) or explain_unknown(name, _DEFAULTS))
        return cls(**cast("ConsumerOptions", options))

    def __post_init__(self) -> None:
        for name, check in _CHECKS.items():
            object.__setattr__(self, name, check(name, getattr(self, name)))
        self._check_group()
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
            self._refuse_classic_options()

    def _refuse_classic_options(self) -> None:
        if tuple(self.assignors) != _default("assignors"):
            raise ConfigError(
                'assignors=... is for the classic protocol: with group_protocol="consumer" the '
                "broker assigns, use server_assignor=..., or leave it out"
            )
        if self.session_timeout != _default("session_timeout"):
            raise ConfigError(
                f'session_timeout={self.session_timeout:g}: with group_protocol="consumer" the '
                "broker decides it, by group.consumer.session.timeout.ms, or for this group by "
                "`kafka-configs --entity-type groups --alter --add-config "
                "consumer.session.timeout.ms=...`: set it there, and leave it out here"
            )

    def _check_times(self) -> None:
        if self.heartbeat_interval * 2 > self.session_timeout:
            raise ConfigError(
                f"heartbeat_interval={self.heartbeat_interval} is more than half of "
                f"session_timeout={self.session_timeout}, so one late heartbeat would cost the "
                f"membership: use heartbeat_interval={self.session_timeout / 3:g}, or a longer "
                "session_timeout"
            )
        if self.revoke_timeout is not None and self.revoke_timeout > self.rebalance_timeout:
            raise ConfigError(
                f"revoke_timeout={self.revoke_timeout} goes beyond "
                f"rebalance_timeout={self.rebalance_timeout}, when the group stops waiting: raise "
                "rebalance_timeout, lower revoke_timeout, or leave it out (None: as long as the "
                "protocol allows)"
            )
        if self.fetch_max_wait >= self.request_timeout:
            raise ConfigError(
                f"fetch_max_wait={self.fetch_max_wait} must be less than "
                f"request_timeout={self.request_timeout}, or every quiet fetch would time out"
            )


_CHECKS: dict[str, checks.Check] = {
    "bootstrap_servers": checks.addresses,
    "group_id": checks.optional(checks.text),
    "commit_mode": checks.choice("processed", "ack", "manual"),
    "auto_delay_revoke": checks.flag,
    "concurrency": checks.count(),
    "order_by": checks.optional(checks.order),
    "null_keys": checks.choice("ordered", "unordered"),
    "max_in_flight": checks.count(),
    "commit_interval": checks.seconds(),
    "completion_map": checks.count(least=0, most=4096),
    "client_id": checks.text,
    "group_instance_id": checks.optional(checks.text),
    "client_rack": checks.optional(checks.text),
    "group_protocol": checks.choice("classic", "consumer", "auto"),
    "server_assignor": checks.optional(checks.text),
    "assignors": checks.assignors,
    "auto_offset_reset": checks.offset_reset,
    "isolation_level": checks.choice("read_uncommitted", "read_committed"),
    "max_poll_records": checks.count(),
    "fetch_min_bytes": checks.count(least=0),
    "fetch_max_wait": checks.seconds(zero=True),
    "fetch_max_bytes": checks.count(),
    "max_partition_fetch_bytes": checks.count(),
    "buffer_memory": checks.count(most=1 << 60),
    "value_as": checks.choice("bytes", "view"),
    "session_timeout": checks.seconds(),
    "heartbeat_interval": checks.seconds(),
    "on_unconfirmed_membership": checks.choice("continue", "pause"),
    "rebalance_timeout": checks.seconds(),
    "max_poll_interval": checks.seconds(),
    "revoke_timeout": checks.optional(checks.seconds()),
    "revoke_gaps": checks.choice("process", "drop"),
    "delayed_revoke_poll_interval": checks.seconds(),
    "close_timeout": checks.seconds(zero=True),
    "request_timeout": checks.seconds(),
    "heartbeat_thread": checks.flag,
    "metadata_max_age": checks.seconds(),
    "compression": checks.choice("none", "gzip", "snappy", "lz4", "zstd"),
    "allow_missing_topics": checks.flag,
    "security_protocol": checks.choice("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
    "ssl_context": checks.optional(checks.tls_context),
    "sasl_mechanism": checks.choice(
        "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "GSSAPI", "OAUTHBEARER"
    ),
    "sasl_plain_username": checks.optional(checks.text),
    "sasl_plain_password": checks.optional(checks.secret),
    "sasl_scram_max_iterations": checks.count(least=4096),
    "sasl_kerberos_service_name": checks.text,
    "sasl_kerberos_domain_name": checks.optional(checks.text),
    "sasl_oauth_token_provider": checks.optional(checks.token_provider),
}

_DEFAULTS = tuple(field.name for field in dataclasses.fields(ConsumerConfig))


def _default(name: str) -> object:
    return ConsumerConfig.__dataclass_fields__[name].default
