"""An asyncio Kafka consumer framework that keeps processing records while the group rebalances.

Names are loaded when they are first used (PEP 562), so that importing the package stays cheap.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fast_depends import Depends as Depends

    from asyncrevoke.client.config import ConsumerConfig
    from asyncrevoke.client.config.inherit import INHERIT
    from asyncrevoke.client.errors import (
        AsyncRevokeError,
        AuthenticationError,
        BrokerError,
        CallbackTimeoutError,
        ConfigError,
        ConsumerClosedError,
        CorruptRecordError,
        DecodeError,
        FatalError,
        FencedInstanceError,
        GroupAuthorizationError,
        HandlerCancelledError,
        HandlerExitError,
        HandlerProcessError,
        HandlerTimeoutError,
        IllegalStateError,
        InconsistentGroupError,
        JournalError,
        LogTruncationError,
        NoOffsetError,
        OffsetOutOfRangeError,
        PartitionLostError,
        PartitionsError,
        ProducerFencedError,
        PublishError,
        RequestTimeoutError,
        TopicAuthorizationError,
        TransactionError,
        UnmatchedRecordError,
        UnreadableRecordError,
        UnsupportedVersionError,
    )
    from asyncrevoke.client.model import (
        BlockingRecord,
        BrokerPattern,
        FailurePause,
        GroupMetadata,
        Health,
        OffsetAndMetadata,
        OffsetAndTimestamp,
        Outage,
        PollResult,
        ProducerHealth,
        Record,
        RunningHandler,
        TopicPartition,
        TransactionProgress,
        UnwrittenRecords,
    )
    from asyncrevoke.client.producing.message import Message, Published
    from asyncrevoke.client.producing.publishing.acknowledgement import Acknowledgement
    from asyncrevoke.client.producing.publishing.producer import Producer
    from asyncrevoke.client.producing.publishing.producer_probe import ProducerProbe
    from asyncrevoke.client.producing.transactions.producer_transaction import ProducerTransaction
    from asyncrevoke.client.runtime.arrow.arrow_steps import ArrowBatch
    from asyncrevoke.client.runtime.session.probe import Probe
    from asyncrevoke.consumer import Consumer, RebalanceListener
    from asyncrevoke.handlers.decoding.arrow_json import ArrowJson as ArrowJson
    from asyncrevoke.handlers.decoding.arrow_registry import ArrowRegistry as ArrowRegistry
    from asyncrevoke.handlers.decoding.column_decoder import DecodedValues
    from asyncrevoke.handlers.lifespans.assigned_partition import AssignedPartition
    from asyncrevoke.handlers.matching import by_header
    from asyncrevoke.handlers.policy.batch import BatchError
    from asyncrevoke.handlers.policy.context import HandlerContext
    from asyncrevoke.handlers.policy.limits import RateLimit
    from asyncrevoke.handlers.policy.middleware import CallNext
    from asyncrevoke.handlers.policy.registration import HandlerOptions
    from asyncrevoke.handlers.policy.retry import Pause, Retry
    from asyncrevoke.handlers.policy.retry_topic import RetryTopic
    from asyncrevoke.handlers.registry import Router
    from asyncrevoke.handlers.task_group import TrackedTaskGroup
    from asyncrevoke.replays.ranges.topic_reader import TopicReader

    __version__: str

__all__ = [
    "INHERIT",
    "Acknowledgement",
    "ArrowBatch",
    "AssignedPartition",
    "AsyncRevokeError",
    "AuthenticationError",
    "BatchError",
    "BlockingRecord",
    "BrokerError",
    "BrokerPattern",
    "CallNext",
    "CallbackTimeoutError",
    "ConfigError",
    "Consumer",
    "ConsumerClosedError",
    "ConsumerConfig",
    "CorruptRecordError",
    "DecodeError",
    "DecodedValues",
    "FailurePause",
    "FatalError",
    "FencedInstanceError",
    "GroupAuthorizationError",
    "GroupMetadata",
    "HandlerCancelledError",
    "HandlerContext",
    "HandlerExitError",
    "HandlerOptions",
    "HandlerProcessError",
    "HandlerTimeoutError",
    "Health",
    "IllegalStateError",
    "InconsistentGroupError",
    "JournalError",
    "LogTruncationError",
    "Message",
    "NoOffsetError",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "OffsetOutOfRangeError",
    "Outage",
    "PartitionLostError",
    "PartitionsError",
    "Pause",
    "PollResult",
    "Probe",
    "Producer",
    "ProducerFencedError",
    "ProducerHealth",
    "ProducerProbe",
    "ProducerTransaction",
    "PublishError",
    "Published",
    "RateLimit",
    "RebalanceListener",
    "Record",
    "RequestTimeoutError",
    "Retry",
    "RetryTopic",
    "Router",
    "RunningHandler",
    "TopicAuthorizationError",
    "TopicPartition",
    "TopicReader",
    "TrackedTaskGroup",
    "TransactionError",
    "TransactionProgress",
    "UnmatchedRecordError",
    "UnreadableRecordError",
    "UnsupportedVersionError",
    "UnwrittenRecords",
    "by_header",
]

_ERRORS = "asyncrevoke.client.errors"
_MODEL = "asyncrevoke.client.model"
_MODULES = {
    "INHERIT": "asyncrevoke.client.config.inherit",
    "Acknowledgement": "asyncrevoke.client.producing.publishing.acknowledgement",
    "ArrowBatch": "asyncrevoke.client.runtime.arrow.arrow_steps",
    "AssignedPartition": "asyncrevoke.handlers.lifespans.assigned_partition",
    "BatchError": "asyncrevoke.handlers.policy.batch",
    "BlockingRecord": _MODEL,
    "CallNext": "asyncrevoke.handlers.policy.middleware",
    "Consumer": "asyncrevoke.consumer",
    "ConsumerConfig": "asyncrevoke.client.config",
    "DecodedValues": "asyncrevoke.handlers.decoding.column_decoder",
    "FailurePause": _MODEL,
    "GroupMetadata": _MODEL,
    "HandlerContext": "asyncrevoke.handlers.policy.context",
    "HandlerOptions": "asyncrevoke.handlers.policy.registration",
    "Health": _MODEL,
    "BrokerPattern": _MODEL,
    "Message": "asyncrevoke.client.producing.message",
    "OffsetAndMetadata": _MODEL,
    "OffsetAndTimestamp": _MODEL,
    "Outage": _MODEL,
    "Pause": "asyncrevoke.handlers.policy.retry",
    "PollResult": _MODEL,
    "Producer": "asyncrevoke.client.producing.publishing.producer",
    "ProducerHealth": _MODEL,
    "ProducerProbe": "asyncrevoke.client.producing.publishing.producer_probe",
    "Published": "asyncrevoke.client.producing.message",
    "ProducerTransaction": "asyncrevoke.client.producing.transactions.producer_transaction",
    "Probe": "asyncrevoke.client.runtime.session.probe",
    "RateLimit": "asyncrevoke.handlers.policy.limits",
    "RebalanceListener": "asyncrevoke.consumer",
    "Record": _MODEL,
    "Retry": "asyncrevoke.handlers.policy.retry",
    "RetryTopic": "asyncrevoke.handlers.policy.retry_topic",
    "Router": "asyncrevoke.handlers.registry",
    "RunningHandler": _MODEL,
    "TopicPartition": _MODEL,
    "TransactionProgress": _MODEL,
    "UnwrittenRecords": _MODEL,
    "TrackedTaskGroup": "asyncrevoke.handlers.task_group",
    "TopicReader": "asyncrevoke.replays.ranges.topic_reader",
    "by_header": "asyncrevoke.handlers.matching",
}
# Not in ``__all__``, as they are of an extra: the module, its packages, and the extra.
_OF_EXTRAS = {
    "ArrowJson": (
        "asyncrevoke.handlers.decoding.arrow_json",
        {"numpy": "numpy", "pyarrow": "pyarrow"},
        "arrow",
    ),
    "ArrowRegistry": (
        "asyncrevoke.handlers.decoding.arrow_registry",
        {"numpy": "numpy", "pyarrow": "pyarrow"},
        "arrow",
    ),
    "Depends": ("fast_depends", {"fast_depends": "fast-depends"}, "depends"),
}


def __getattr__(name: str) -> object:
    if name in _OF_EXTRAS:
        return _of_extra(name)
    if name == "__version__":
        from asyncrevoke.client.config.software import __version__ as version

        return version
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(_MODULES.get(name, _ERRORS)), name)
    globals()[name] = value
    return value


def _of_extra(name: str) -> object:
    module, packages, extra = _OF_EXTRAS[name]
    try:
        value: object = getattr(import_module(module), name)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in packages:
            raise
        raise ModuleNotFoundError(
            f"{name} needs {packages[missing]}: pip install 'asyncrevoke[{extra}]'", name=error.name
        ) from error
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
