"""What has no meaning in a share group: options, and methods of a consumer; each with its sentence.

A share group has no owner of a partition, no offset to commit, no order and no revocation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NoReturn

from asyncrevoke.client.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_CONCURRENCY: Final = 64
_NO_OFFSETS: Final = "no offset of a share group is committed: its records are acknowledged"
_NO_OWNER: Final = "no partition of a share group has an owner, and none is revoked"
_BY_BROKER: Final = "the brokers assign the partitions of a share group"
_BY_LOCK: Final = "records of a share group belong to a member while their lock has not passed"
_BY_GROUP: Final = "is an option of the group: set it with `asyncrevoke groups configure`"
_NO_POSITION: Final = "a share group has no position in a partition"
_BY_HANDLERS: Final = "handlers take the records of a share group"
_NO_TRANSACTIONS: Final = "records of a share group cannot be acknowledged in a transaction"

OPTIONS: Final = {
    "processing": _NO_TRANSACTIONS,
    "transaction_interval": _NO_TRANSACTIONS,
    "transaction_timeout": _NO_TRANSACTIONS,
    "transactional_id_prefix": _NO_TRANSACTIONS,
    "order_by": "records of a share group have no order",
    "null_keys": "records of a share group have no order",
    "commit_mode": _NO_OFFSETS,
    "commit_interval": _NO_OFFSETS,
    "completion_map": _NO_OFFSETS,
    "auto_delay_revoke": _NO_OWNER,
    "revoke_timeout": _NO_OWNER,
    "revoke_gaps": _NO_OWNER,
    "delayed_revoke_poll_interval": _NO_OWNER,
    "rebalance_timeout": _NO_OWNER,
    "group_instance_id": _NO_OWNER,
    "group_protocol": _BY_BROKER,
    "server_assignor": _BY_BROKER,
    "assignors": _BY_BROKER,
    "auto_offset_reset": f"share.auto.offset.reset {_BY_GROUP}",
    "isolation_level": f"share.isolation.level {_BY_GROUP}",
    "session_timeout": f"share.session.timeout.ms {_BY_GROUP}",
    "heartbeat_interval": f"share.heartbeat.interval.ms {_BY_GROUP}",
    "on_unconfirmed_membership": _BY_LOCK,
    "max_poll_interval": _BY_LOCK,
    "heartbeat_thread": "a heartbeat does not renew the locks of a share group",
    "max_poll_records": "concurrency and max_in_flight limit what a share group acquires",
    "fetch_min_bytes": "a share group acquires what is there",
    "max_partition_fetch_bytes": "concurrency and max_in_flight limit what a share group acquires",
}
"""Options of a consumer."""

ARGUMENTS: Final = {
    "listener": _NO_OWNER,
    "pattern": "a share group subscribes to topics by name",
}
"""Arguments of ``Consumer(...)`` beside its options."""

CALLS: Final = {
    "subscribe": "a consumer of a share group reads the topics of its handlers",
    "unsubscribe": "close the consumer to leave the share group",
    "wait_for_assignment": "health() says how many partitions of a share group are assigned",
    "subscription": "a consumer of a share group reads the topics of its handlers",
    "assignment": "partitions of a share group are assigned to several members at a time",
    "assign": "only members of a share group read for it",
    "pause": "other members of the share group would go on: stop the consumer",
    "resume": "no partition of a share group is paused",
    "paused": "no partition of a share group is paused",
    "seek": _NO_POSITION,
    "seek_to_beginning": _NO_POSITION,
    "seek_to_end": _NO_POSITION,
    "position": _NO_POSITION,
    "lag": "`asyncrevoke groups` shows the lag of a share group",
    "highwater": _NO_POSITION,
    "last_stable_offset": _NO_POSITION,
    "committed": _NO_OFFSETS,
    "commit": _NO_OFFSETS,
    "ack": "a record of a share group is acknowledged when its handler has ended",
    "delay_revoke": _NO_OWNER,
    "offsets_for_times": _NO_POSITION,
    "beginning_offsets": _NO_POSITION,
    "end_offsets": _NO_POSITION,
    "partitions_for_topic": _NO_POSITION,
    "poll": _BY_HANDLERS,
    "records": _BY_HANDLERS,
    "task_group": _BY_HANDLERS,
    "transaction": _NO_TRANSACTIONS,
    "partition_lifespan": _NO_OWNER,
}
"""Methods of a consumer."""

HANDLER_OPTIONS: Final = {
    "pattern": ARGUMENTS["pattern"],
    "order_by": OPTIONS["order_by"],
    "retry_topic": "release the record for a later delivery, or use retry",
    "on_error": 'use "release", "reject" or "stop"',
}
"""Options of a handler; ``order_by`` unless it is None, ``on_error`` if it pauses or skips."""

_HARMLESS: Final = (("order_by", None), ("processing", "at_least_once"))


def share_group_options(given: Mapping[str, object]) -> dict[str, object]:
    """The options, as they were given, with the defaults that differ in a share group. Raises
    ConfigError."""
    for name, why in OPTIONS.items():
        if name in given and (name, given[name]) not in _HARMLESS:
            raise ConfigError(refusal(f"{name}=...", why))
    if given.get("group_id") is None:
        raise ConfigError('group_type="share" needs a group: give a group_id')
    options = {"order_by": None, **given}
    concurrency = options.get("concurrency", _CONCURRENCY)
    if isinstance(concurrency, int):
        options.setdefault("max_in_flight", 2 * concurrency)
    return options


def refuse_calls(consumer: object, **arguments: object) -> None:
    """Let the methods raise ConfigError that have no meaning for this consumer of a share group.
    Raises it for ``arguments`` of the constructor without meaning that are given."""
    for name, why in ARGUMENTS.items():
        if arguments.get(name) is not None:
            raise ConfigError(refusal(f"{name}=...", why))
    for name, why in CALLS.items():
        setattr(consumer, name, _refusing(refusal(f"{name}()", why)))


def refusal(what: str, why: str) -> str:
    """The message about something without meaning in a share group."""
    return f'{what} has no meaning with group_type="share": {why}'


def _refusing(message: str) -> Callable[..., NoReturn]:
    def refuse(*_arguments: object, **_named: object) -> NoReturn:
        raise ConfigError(message)

    return refuse
