"""Events of the log, each declared once: its level, name, fields and meaning.

The text below an event is its meaning, in Markdown. ``tests/documentation/log_events.py`` writes
two pages of ``docs/reference`` from this module. Not declared as fields: ``group``, ``member`` and
``worker`` where the log adds them, and ``exc_info``.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from asyncrevoke.client.model import Value

if TYPE_CHECKING:
    from collections.abc import Mapping


Level: TypeAlias = Literal["debug", "info", "warning", "error"]


class Log(Protocol):
    """What takes events. Implemented by :class:`EventLog`."""

    def write(self, level: Level, event: str, fields: Mapping[str, object], /) -> object:
        """Write one line. The field ``exc_info`` is an exception.

        ``debug`` is for finding a fault, ``info`` is what an operator may want to know, ``warning``
        what an operator should look at, and ``error`` needs an operator.
        """
        ...


class LogEvent(Value, frozen=True):
    """An event that a log line tells of."""

    level: Level
    name: str
    fields: str = ""
    """Their names, separated by spaces."""

    def write_to(self, log: Log, /, **fields: object) -> None:
        """Write one line."""
        log.write(self.level, self.name, fields)


_debug = partial(LogEvent, "debug")
_info = partial(LogEvent, "info")
_warning = partial(LogEvent, "warning")
_error = partial(LogEvent, "error")


# --- Brokers and topics
METADATA_REQUESTED = _debug("metadata refresh", "reason")
WAITING_FOR_BROKER = _warning("waiting for a broker that responds", "tried reason check seconds")
"""`check` says what to check if none has responded since the start."""
BROKER_REACHABLE = _info("broker reachable", "node seconds")
BROKER_SILENT = _warning("a broker does not respond; trying a new connection", "node seconds")
"""No byte was received for [a third of the session
timeout](configuration.md#what-each-timeout-limits)."""
BOOTSTRAP_AGAIN = _warning("connecting to the bootstrap addresses again", "reason")
"""A broker requires it (KIP-1102), another broker listens at an address (KIP-1242), or no metadata
were received for 5 minutes."""
THROTTLED = _info("throttled by a quota", "node request seconds")
"""Requests on a connection wait for the throttle time that a broker has sent (KIP-219)."""
STILL_THROTTLED = _debug("throttled by a quota", "node request seconds")
"""The same while the broker has throttled the client within the last minute."""
INVALID_RESPONSE = _warning(
    "invalid response from a broker; retrying on a new connection", "request node problem"
)
"""The response decodes, but its content cannot be right."""
UNKNOWN_ERROR_CODES = _warning(
    "unknown error codes in a response; handled as UNKNOWN_SERVER_ERROR", "node request codes"
)
"""The broker is newer than the library."""
WAITING_FOR_TOPIC = _warning("waiting for a topic", "topic reason seconds")
WAITING_FOR_TOPIC_ACCESS = _warning("waiting for access to a topic", "topic reason seconds")
"""Grant DESCRIBE and READ."""
WAITING_FOR_MISSING_TOPICS = _warning(
    "waiting for topics that do not exist", "topics count create seconds"
)
"""`create` is the command that creates the first 10."""
TOPICS_OF_OTHER_MEMBERS_MISSING = _warning(
    "other members subscribe to topics that do not exist or that this member may not see; "
    "these are not assigned",
    "topics count seconds",
)
"""On the group's leader."""
OUTPUT_TOPICS_MISSING = _warning(
    "records cannot be sent to topics that do not exist", "topics count create seconds"
)
"""Of handlers, or of a `Producer`; `create` is the command that creates the first 10."""
TOPIC_AVAILABLE = _info("topic available", "topic seconds")
TOPIC_NO_LONGER_EXISTS = _warning("topic no longer exists", "topic")
TOPIC_RECREATED = _warning("topic was deleted and created again", "topic")

# --- Membership
WAITING_FOR_COORDINATOR = _warning("waiting for the group coordinator", "seconds last_response")
COORDINATOR_FOUND = _debug("coordinator found", "node")
COORDINATOR_UNKNOWN = _info("coordinator unknown", "reason")
"""The coordinator has moved, or its connection broke."""
COORDINATOR_STILL_UNKNOWN = _debug("coordinator still unknown", "reason")
COORDINATOR_SILENT = _info("the coordinator does not respond; retrying on a new connection")
"""JoinGroup or SyncGroup is sent again."""
CLASSIC_PROTOCOL = _info("using the classic group protocol", "reason")
"""`group_protocol="auto"`."""
JOINING = _info("joining", "reason")
REJOINING = _info("rejoining", "reason")
"""The response to JoinGroup was an error."""
WAITING_FOR_OTHER_MEMBERS = _warning(
    "waiting for other members to rejoin, or for the session of a dead member to time out",
    "phase seconds",
)
ASSIGNED = _info("assigned", "generation partitions added to_go")
"""`added` counts the new partitions, `to_go` those that are being revoked."""
PATTERN_TOO_WIDE = _error(
    "pattern matches too many topics; not all of them are consumed", "matching subscribed"
)
"""The limit is 100,000 topics with 1.5 MiB of names."""
INTERNAL_TOPICS_NOT_CONSUMED = _info(
    "internal topics match the pattern; they are not consumed", "topics"
)
"""Those that a pattern of the broker matches, once each."""
ASSIGNED_TOPICS_UNKNOWN = _warning(
    "assigned partitions are missing in the brokers' metadata; they are not read yet",
    "reason count topics",
)
"""KIP-848: this member may not describe the topics (at once), or the brokers lag behind (after ten
seconds)."""
ASSIGNMENT_NOT_DECODED = _error(
    "the leader's assignment cannot be decoded; no partitions are assigned", "problem"
)
"""More than 4 MiB or 100,000 partitions, or other bytes. The next rebalance assigns again."""
ASSIGNMENT_PARTLY_INVALID = _error(
    "part of the leader's assignment is not valid and was ignored", "problem"
)
"""More than 10,000 partitions do not exist."""
SUBSCRIPTION_NOT_DECODED = _error(
    "a member's subscription cannot be decoded; it is assigned no partitions", "member problem"
)
"""On the group's leader."""
SUBSCRIPTION_PARTLY_INVALID = _warning(
    "part of a member's subscription is not valid and was ignored", "member problems"
)
"""On the group's leader: invalid topic names, a generation that never existed, or invalid bytes
after the user data."""
OTHER_CLIENTS_WITH_EXACTLY_ONCE = _warning(
    "members of other clients are in a group with processing='exactly_once'", "members count hazard"
)
"""On the group's leader, or if another client's member leads: at most five member ids."""
ASSIGNOR_GAVE_OWNED_PARTITIONS = _error(
    "the assignor assigned partitions that other members still own", "assignor violations count"
)
"""On the group's leader: they are assigned in the next rebalance."""
HEARTBEAT_FAILED = _debug("heartbeat failed; the member continues", "error")
THREAD_HEARTBEAT_FAILED = _info(
    "heartbeat from the thread failed; sending one from the event loop", "reason"
)
HEARTBEATS_UNCONFIRMED = _warning(
    "membership unconfirmed: no heartbeat confirmed within the session timeout",
    "last_confirmed seconds",
)
"""`last_confirmed` is the time since then."""
HEARTBEATS_REJECTED = _warning(
    "membership unconfirmed: the coordinator rejects heartbeats",
    "waiting_for last_response detail seconds",
)
"""KIP-848; the member retries. `waiting_for` is for example an instance id to be released."""
NO_RECORDS_WHILE_UNCONFIRMED = _warning("no records until the coordinator confirms the membership")
"""[`on_unconfirmed_membership`](fetch-and-connection-options.md#on_unconfirmed_membership)."""
MEMBERSHIP_CONFIRMED = _info("membership is confirmed again", "seconds")
MEMBERSHIP_LOST = _warning("membership lost", "reason")
MAX_POLL_INTERVAL_EXCEEDED = _warning("max_poll_interval exceeded; leaving group", "seconds")
LEFT_GROUP = _info("left the group", "error")
"""With `error` if the coordinator did not confirm it."""
LEFT_WITHOUT_COORDINATOR = _warning(
    "left without notifying the coordinator; partitions move at session timeout"
)
"""The coordinator is unknown, or `close_timeout` is over."""

# --- Share groups
SHARE_PARTITIONS_ASSIGNED = _info("share group has assigned partitions", "epoch count")
SHARE_GROUP_BEGINS_AT_END = _warning(
    "a new share group begins at the end of its topics: older records are skipped", "change"
)
"""`share.auto.offset.reset` of the group is `latest`, as by default; `change` is the command that
sets it before a partition is first fetched."""
WAITING_FOR_SHARE_GROUP = _warning(
    "waiting for the share group", "waiting_for reason detail seconds"
)
SHARE_MEMBER_JOINS_AGAIN = _warning("removed from the share group; joining again", "reason")
"""What the member has acquired stays locked for it, and its handlers go on."""
SHARE_LOCKS_LOST = _warning(
    "locks of acquired records are lost", "topic partition records offsets reason"
)
"""The broker delivers these records again, to any member, and counts a delivery."""
SHARE_LOOP_BLOCKED = _warning(
    "event loop was blocked: locks of acquired records were not renewed in time",
    "seconds lock handlers",
)
"""For more than half of a lock. `handlers` ran before or after it; run blocking work with
`run_in="thread"`."""
SHARE_RENEWALS_REFUSED = _warning("the broker does not renew locks of acquired records")
"""`share.renew.acknowledge.enable` of the group is false: a handler that takes longer than the lock
(`share.record.lock.duration.ms`) loses its record."""
SHARE_REQUEST_REJECTED = _warning("a request of the share session is rejected", "node error detail")
SHARE_PARTITION_RETRIED = _info(
    "a partition of the share group cannot be fetched yet", "topic partition error"
)
SHARE_BATCH_CORRUPT = _warning(
    "a record batch is corrupt; it is fetched again when its locks have passed",
    "topic partition offset reason",
)

# --- Revocations
REVOCATION_REQUESTED = _info("revocation requested", "partitions")
REVOCATION_WITHDRAWN = _info("revocation withdrawn", "partition")
REVOCATION_ANNOUNCED = _debug("revocation announced", "partitions")
"""To the loop, in `to_be_revoked`, or to the handlers."""
REVOCATION_DELAYED = _debug("revocation delayed", "partitions")
REVOCATION_WAITS_FOR_RECORD = _warning(
    "revocation delayed by in-flight record", "handler partition offset seconds unfinished"
)
"""See [what delays a revocation](../explanation/rebalancing.md#what-delays-a-revocation)."""
RELEASED = _info("released", "partition seconds")
RELEASED_UNCOMMITTED = _warning(
    "released without its final commit; records may be processed again", "partition reason"
)
"""The broker rejected the last attempt."""
PARTITIONS_LOST = _warning("partitions lost", "partitions reason")
"""Their handlers are cancelled, and their offsets cannot be committed."""

# --- Reading
WAITING_FOR_POSITION = _warning(
    "waiting for the position of a partition", "partition waiting_for reason seconds"
)
"""It is not fetched yet."""
OFFSET_PENDING_TOO_LONG = _warning(
    "a committed offset is pending for longer than a transaction may last", "partition seconds"
)
"""Its coordinator should have ended the transaction: `transaction_timeout` (60 s without exactly
once) and 20 s are over. A marker was lost, or cannot be written because a partition of the
transaction has no leader: `kafka-transactions.sh find-hanging` finds it, and `abort` ends it. A
`seek()` continues without the offset."""
POSITIONS_KNOWN = _info("all positions are known", "seconds")
POSITION_RESET = _info("position is reset", "policy reason count offsets")
"""By `auto_offset_reset`, without a committed offset; at the first record if `reason` is `the
partition was created after the subscription began`. `offsets` says where reading begins (at most
100 partitions)."""
POSITION_OUT_OF_RANGE = _warning("position is reset", "policy reason count offsets")
"""By `auto_offset_reset`: the position was out of range."""
POSITION_SET = _debug("position is set", "partition offset")
"""By a seek or a reset, until the next commit."""
TIMES_APPROXIMATE = _warning(
    "brokers look offsets up by time only approximately; older records are left out",
    "partition offset timestamp sought",
)
"""The record at the offset that they named is older than the time; logged once."""
WAITING_FOR_FETCH_BROKER = _warning(
    "waiting for a broker to fetch from", "node partitions reason seconds"
)
WAITING_TO_FETCH = _warning("waiting to fetch", "partition reason seconds")
WAITING_FOR_VALIDATION = _warning(
    "waiting to validate the position after a leader change", "partition reason seconds"
)
"""Whether the new leader has truncated the log is not known yet (KIP-320)."""
FETCHING_AGAIN = _info("fetching again", "node seconds partition")
LOG_TRUNCATED = _warning(
    "log truncated; records that were already read are gone", "partition position truncated_to"
)
"""After an unclean leader election."""
REREAD_RECORDS_DELETED = _warning(
    "records to be read again are no longer in the log", "partition log_start"
)
"""After a withdrawn revocation or a resumption: retention has deleted some of them."""
READING_FROM_LEADER = _warning(
    "reading from the leader: the nearest replica cannot be used",
    "partition replica reason seconds",
)
"""With `client_rack`; retried after at most 10 s, later if the replica does not respond."""
READING_FROM_NEAREST = _info("reading from the nearest replica again", "replica seconds")
LARGE_BATCH_FETCHED = _info(
    "record batch exceeds max_partition_fetch_bytes; fetched all the same", "partition bytes limit"
)
"""Once for each partition."""
VIEWS_KEEP_MEMORY = _warning(
    "views of delivered records keep fetch responses in memory; copy what is kept", "bytes"
)
"""For a minute or longer, with
[`value_as="view"`](../how-to/consuming/large-records.md#what-a-view-keeps-in-memory)."""
MAX_IN_FLIGHT_REACHED = _warning("max_in_flight reached; delivery paused", "in_flight oldest")

# --- Commits
COMMITTED = _debug("committed", "offsets seconds")
TRANSACTIONS_BEGIN = _info("results are written in transactions", "transactional_id")
"""With `processing="exactly_once"`. Each member has a transactional id of its own."""
TRANSACTION_ABORTED = _warning("a transaction was aborted; its records wait", "reason records")
"""Nothing of it is visible. The results of these records are written in the next transaction."""
TRANSACTION_IN_DOUBT = _warning(
    "reading the committed offsets, as it is unknown if a transaction is committed", "reason"
)
"""The offsets say whether it is; until then no other transaction begins."""
TRANSACTION_RESULTS_REFUSED = _warning("results were refused", "topic reason results")
"""The records of these results fail, and the failure policy of their handlers decides; the block of
a loop's transaction raises."""
WAITING_FOR_COMMITS = _warning("waiting for commits to be acknowledged", "reason seconds")
"""Brokers respond with an error that usually passes."""
COMMIT_REJECTED = _warning(
    "commit rejected, trying again; records may be processed again", "partition error seconds"
)
"""For example for lack of authorization."""
COMMIT_NOT_RETRIED = _warning("commit rejected; it is not tried again", "partition offset error")
"""[`commit_mode="manual"`](../explanation/commit-modes.md#manual): `commit()` raises it."""
COMMITS_ACCEPTED = _info("commits are accepted again", "seconds partition")
OFFSET_REWOUND = _warning("committed offset rewound by delayed commit; recommitting", "offsets")
"""A broker processed a commit after a newer one: `offsets` that it holds now."""
COMMIT_METADATA_TOO_LARGE = _error("commit metadata too large", "size partition")
"""It exceeds the broker's `offset.metadata.max.bytes`."""
COMPLETED_RECORDS_SKIPPED = _info(
    "skipping records completed by previous owner", "partition offsets committed up_to"
)
"""By the [completion map](../how-to/handlers/revocations-and-crashes.md#what-a-crash-repeats) of a
commit."""
MAP_APPLIED = _debug("completion map is applied", "partition runs")
"""`runs` has the first offset of each run of completed records, and the offset after its last."""
MAP_BEYOND_LOG_END = _warning(
    "completion map ignored: it goes beyond the log end offset", "partition up_to log_end"
)
"""The topic was truncated, or deleted and created again."""
MAP_TOO_LARGE = _warning(
    "the broker rejects a completion map of this size; it will be smaller", "size limit"
)
"""It exceeds the broker's `offset.metadata.max.bytes`."""
MAPS_NOT_KEPT = _warning(
    "brokers do not keep commit metadata; no completion maps are written", "hazard option"
)
"""The first map that was committed is gone, as in Tansu 0.6; logged once."""
TOO_MANY_BEYOND_ONE = _warning(
    "too many records completed beyond one in flight; delivery of its partition paused",
    "partition offset position",
)
"""`offset` is that of the record in flight."""
PARTITION_RESUMED = _info("partition resumed", "partition")

# --- Handlers
HANDLER_RETRIED = _warning("handler failed; retrying", "handler partition offset attempt seconds")
"""`seconds` until the next attempt."""
RECORD_RELEASED_LATER = _warning(
    "handler failed; record released later", "handler partition offset deliveries seconds"
)
"""`on_error="release"` of a share group."""
RECORD_ON_LAST_DELIVERY = _error(
    "handler failed on the last delivery; the broker will archive the record",
    "handler partition offset deliveries seconds",
)
"""`share.delivery.count.limit` of the group is reached. To keep such records, use `dead_letter`."""
RECORD_REJECTED = _warning("handler failed; record rejected", "handler partition offset")
"""`on_error="reject"` of a share group."""
RECORD_SKIPPED = _warning("handler failed; record skipped", "handler partition offset")
"""`on_error="skip"`."""
DEAD_LETTER_SENT = _warning(
    "handler failed; record sent to the dead letter topic",
    "handler partition offset to_topic attempts",
)
SENT_TO_RETRY_TOPIC = _warning(
    "handler failed; record sent to the retry topic", "handler partition offset to_topic attempts"
)
UNMATCHED_RECORD_SENT = _warning(
    "no handler matches the record; record sent to the dead letter topic",
    "handler partition offset to_topic attempts",
)
"""`unmatched="dead_letter"`."""
UNMATCHED_RECORDS_SKIPPED = _info(
    "no handler matches some records of a topic; they are skipped", "partition offset"
)
"""`unmatched="skip"`; the first such record of each topic."""
ORIGIN_NOT_OURS = _warning(
    "record of a retry topic names an origin whose handlers do not send there; "
    "its headers are ignored",
    "partition offset origin",
)
"""The first one of each retry topic; it is handled as a record of that topic."""
TOPIC_NOT_WRITABLE = _error(
    "records cannot be written to a topic; they are held until they can be",
    "handler partition offset to_topic error",
)
"""Once, with the first record, until the topic takes records."""
TOPIC_WRITABLE_AGAIN = _info("records can be written to a topic again", "to_topic count seconds")
FAILED_RECORD_REFUSED = _error(
    "a topic refuses a failed record; the record is held until it is written",
    "handler partition offset to_topic error",
)
"""For example because of its size."""
PAUSED_UNTIL_SUCCESS = _warning(
    "handler failed; partition paused until the record succeeds",
    "handler partition offset attempt seconds",
)
"""`on_error=Pause(...)`, once for each type of error: `seconds` until the next attempt."""
PAUSED_RECORD_SUCCEEDED = _info(
    "partition resumed; its failed record has succeeded", "handler partition offset"
)
PAUSED_UNTIL_RESUME = _error(
    "handler failed; partition paused until resume()", "handler partition offset to_topic"
)
"""`on_error="pause"`; in a replay also a failed write `to_topic`."""
NO_FURTHER_RECORDS = _error(
    "handler failed; no further records start", "handler partition offset error reason"
)
"""`on_error="stop"`, or a task of a task group; `reason` if `worker_resources` could not be
opened."""
HANDLER_STOPPED_CONSUMER = _error("handler failed; consumer stopped")
NOT_STARTED = _error("handlers could not be started; consumer stopped")
"""`resources` or `worker_resources` could not be opened, for example."""
ANOTHER_HANDLER_FAILED = _error("another handler failed while the consumer stops")
CANCELLED_AFTER_FAILURE = _error("cancelled while stopping after a handler failure")
FAILED_WHEN_CANCELLED = _warning(
    "handler failed when cancelled; record will be processed again", "handler partition offset"
)
"""The partition was lost, or the consumer is closing."""
FAILED_WHILE_STOPPING = _warning(
    "handler failed while its partition stops; record will be processed again",
    "handler partition offset",
)
"""By the next owner, or here when the partition is resumed."""
RESULTS_NOT_PUBLISHED = _warning(
    "results not published while their partitions stop; records will be processed again",
    "partition offset count",
)
"""`partition` and `offset` of the first."""
RECORDS_NOT_PUBLISHED = _error(
    "records were not published, and no call waits for them", "topic records reason in_doubt"
)
"""Of `publish_soon`. The next `flush`, or closing, raises the error. With `in_doubt` they may have
been written."""
RESULTS_LOST = _warning("handler returned a value; results without publish_to are lost", "handler")
"""The first call of a handler without a return annotation."""
HALF_OF_MAX_HANDLER_TIME = _warning(
    "handler has used half of max_handler_time", "handler partition offset max_handler_time"
)
HANDLER_DID_NOT_EXIT = _error(
    "handler did not exit when cancelled; partition paused until resume()",
    "handler partition offset max_handler_time",
)
"""5 s after its `max_handler_time`."""
HANDLER_ABANDONED = _error("cancelled handler did not exit; abandoned", "partition offset")
"""A handler, or a task of a task group."""
RESOURCES_CLOSE_FAILED = _error("worker_resources failed to close")
RESOURCES_CLOSE_ABANDONED = _error(
    "worker_resources did not close when cancelled; abandoned", "count"
)
REGISTRY_SILENT = _warning(
    "a schema registry does not respond; asking again", "registry reason patience"
)
"""Records whose schemas are not known yet wait, for `patience` seconds each."""
REGISTRY_RESPONDS = _info("the schema registry responds again", "registry seconds")
TASK_FAILED_BESIDE_ERROR = _error("task failed, and its group was left with another error")
ANOTHER_TASK_FAILED = _error("another task failed while its group stops")

# --- Partition lifespans
LIFESPAN_ENTERING = _warning(
    "partition lifespan is entering; records of its partition wait", "partition seconds"
)
"""After 5 s."""
LIFESPAN_EXITING = _warning(
    "partition lifespan is exiting; the release of its partition waits", "partition seconds"
)
"""After 5 s."""
LIFESPAN_ENTRY_FAILED = _error(
    "partition lifespan failed at entry; records of its partition not processed", "partition"
)
"""The consumer stops."""
LIFESPAN_EXIT_FAILED = _error(
    "partition lifespan failed at exit; final offsets of its partition not committed", "partition"
)
"""Records since the last commit are processed again; the consumer stops."""
LIFESPAN_FAILED_CANCELLED = _error(
    "partition lifespan failed when its entry was cancelled", "partition"
)
"""Nothing was processed."""
LIFESPAN_FAILED_LOST = _error("partition lifespan failed after its partition was lost", "partition")
LIFESPAN_STATE_INCOMPLETE = _warning(
    "partition lost while its lifespan exited; its state may be incomplete", "partition"
)
LIFESPAN_CANCELLED = _warning(
    "partition lifespan cancelled: still running after its partition was lost", "partition"
)
"""5 s after the loss."""
LIFESPAN_ABANDONED = _error("cancelled partition lifespan did not exit; abandoned", "partition")
"""Neither closing nor the next assignment of its partition waits for it."""

# --- The event loop and callbacks
LOOP_WAS_BLOCKED = _warning("event loop was blocked; nothing was sent or received", "seconds hint")
"""Without a heartbeat thread."""
LOOP_BLOCKED = _warning(
    "event loop blocked; heartbeats are sent from a thread", "blocked_at seconds hint"
)
LOOP_BLOCKED_TOO_LONG = _error(
    "event loop blocked for max_poll_interval; the group removes this member", "blocked_at"
)
"""The heartbeat thread stops sending heartbeats."""
LOOP_RUNS_AGAIN = _info("event loop runs again", "seconds blocked_at")
HEARTBEAT_THREAD_FAILED = _error(
    "heartbeat thread failed; no heartbeats while the event loop is blocked"
)
OBSERVER_FAILED = _error("observer failed; it is not called any more", "observer")
CALLBACK_ABANDONED = _error("cancelled callback did not exit; abandoned", "callback")
"""A callback of a listener."""
PROCESSOR_FAILED = _error("structlog processor failed; event logged without it", "event fields")

# --- Stopping
DRAINING = _info("draining; a second signal ends the process at once", "signal")
CLOSING_HANDLES_GAPS = _info("closing; handling gaps first", "seconds")
"""A member may [not read completion
maps](../how-to/handlers/revocations-and-crashes.md#when-a-partition-goes)."""
CLOSING_WAITS_FOR_LOOP = _info("closing; waiting for the loop to request its next batch", "seconds")
GAPS_DROPPED = _warning(
    "deadline is near; gaps dropped, records may be processed again", "partition"
)
"""Of a revocation (`partition`), or of closing."""
HANDLERS_CANCELLED = _warning(
    "close_timeout reached; running handlers cancelled, records will be processed again",
    "running handlers",
)
"""The last seconds are for the final commit and for leaving."""
TASKS_CANCELLED = _warning(
    "close_timeout reached; running tasks cancelled, records will be processed again",
    "running tasks",
)
"""Of a task group in which a task has failed."""
TASKS_STILL_RUN = _warning("tasks did not end in time; leaving while they run")
"""The time that `close_timeout` leaves for tasks is over."""
CLOSE_TIMEOUT_EXCEEDED = _error("close_timeout exceeded; closed without waiting further")
CLOSED_WITHOUT_LEAVING = _warning(
    "closed without leaving the group; partitions move at session timeout"
)
HANDLER_RESOURCES_ABANDONED = _error(
    "resources of handlers did not close when cancelled; abandoned"
)
LISTENER_FAILED_CLOSING = _error("rebalance listener failed while closing")
"""No later poll can raise the error."""
CLOSING_FAILED = _error("closing failed after another error, which is raised")
INTERNAL_ERROR_CLOSING = _warning("internal error while closing")
"""An error in this library; please report it."""
INTERNAL_ERROR = _error("consumer failed; no further records are processed")
"""An error in this library; please report it."""
FATAL_ERROR = _error("fatal error; consumer stopped", "error")
"""A [FatalError](errors.md#the-consumer-cannot-go-on)."""
CLOSING_FAILED_AFTER_CRASH = _debug("closing failed, as expected after a crash")
"""`AsyncRevokeHarness.crash()`."""

# --- `asyncrevoke run`
APPLICATION_NOT_IMPORTED = _error("application could not be imported", "application")
APPLICATION_FAILED = _error("application failed", "error")
APPLICATION_WAITS_FOR_CHANGE = _warning(
    "application failed; waiting for a file to change", "ended_by"
)
"""`--reload`."""
APPLICATION_RESTARTED = _info("files changed; restarting the application", "files")
"""`--reload`."""
ANOTHER_CONSUMER_FAILED = _error("another consumer failed while the application stops")
PROCESS_ENDED = _error("process did not exit within close_timeout; ending it", "threads")
STOPPING_WORKERS = _info("stopping workers; a second signal kills them", "signal")
WORKER_EXITED = _info("worker exited", "pid")
WORKER_RESTARTED = _warning(
    "worker exited with an error; restarting it", "worker pid ended_by seconds"
)
"""After `seconds`."""
WORKER_KILLED = _error(
    "worker did not stop in time; killed, uncommitted records are processed again",
    "pid shutdown_timeout",
)
WORKER_REPORT_INVALID = _error("worker sent an invalid report; killed", "pid error")
"""Something else in the process wrote to the supervisor's socket."""
WORKER_HEALTH_NOT_REPORTED = _error("worker could not report its health")
"""The supervisor will count the worker as not alive."""
METRICS_NOT_COLLECTED = _error("metrics could not be collected")
"""`--metrics`: a collector of the application failed, or the text is longer than 32 MiB; the scrape
lacks this worker."""

# --- Journal and Spark
SEGMENT_NOT_SEALED = _warning("journal segment not sealed; audits read its log instead", "error")
"""Sealing failed; the log holds the same rows."""
SEGMENT_NOT_SEALED_IN_TIME = _warning(
    "journal segment not sealed within close_timeout; its log is complete"
)
"""The segment is sealed when a journal next uses the folder."""
JOURNAL_VALUE_DAMAGED = _warning("journal value damaged; skipping its rows", "problem")
"""An audit of a journal in a topic has read a value that cannot be decoded; the report counts the
damage."""
OFFSETS_NOT_AUDITED = _warning("committed offsets not audited", "error")
"""An audit continues without them."""
IDLE_CONSUMER_NOT_CLOSED = _warning("idle consumer not closed cleanly", "error")
"""A consumer that Spark tasks of this process share."""
REQUESTED_START_DELETED = _warning(
    "requested start deleted; reading from the earliest offset", "starts missing"
)
"""`missing="clip"`: `starts` has the partitions and where reading begins, `missing` counts the
offsets."""
REQUESTED_END_UNSTABLE = _warning(
    "requested end is beyond the last stable offset; reading up to that offset", "ends unstable"
)
"""`ends` has the partitions and where reading ends, `unstable` counts the offsets left out."""
PLANNED_RECORDS_DELETED = _warning(
    "planned records deleted; reading from the earliest offset", "partition position start missing"
)
"""`missing="clip"`: retention has removed records between planning and reading; reading begins at
`start`, `missing` counts the offsets."""
REPLAY_GROUP_STAYS = _warning("the group of a replay was not deleted", "group reason")
"""Of `dead-letters replay --processing exactly_once`. Nothing needs the group; delete it."""
RUN_RESUMED = _info("run exists; resuming its planned ranges and ignoring the given ones", "run_id")
"""A replay with this `run_id` was begun before."""
RECORDS_LOST = _warning("records lost; reading from the earliest offset", "reasons")
"""A Structured Streaming query with `missing="clip"`."""
UNSELECTED_LEFT_OUT = _warning(
    "the options no longer select these; reading the others", "unselected"
)
"""A Structured Streaming query with `missing="clip"`, whose checkpoint has other topics or
partitions."""
