"""Every option of a consumer: its default, its unit, and its hazard."""

from asyncrevoke.client.config.checks import ASSIGNORS
from asyncrevoke.client.config.consumer_config import ConsumerConfig
from asyncrevoke.client.config.consumer_options import (
    Acquire,
    CommitMode,
    ConsumerOptions,
    GroupProtocol,
    GroupType,
    IsolationLevel,
    NullKeys,
    OffsetReset,
    OnUnconfirmedMembership,
    OrderBy,
    OwnAssignor,
    SaslMechanism,
    SecurityProtocol,
)

__all__ = [
    "ASSIGNORS",
    "Acquire",
    "CommitMode",
    "ConsumerConfig",
    "ConsumerOptions",
    "GroupProtocol",
    "GroupType",
    "IsolationLevel",
    "NullKeys",
    "OffsetReset",
    "OnUnconfirmedMembership",
    "OrderBy",
    "OwnAssignor",
    "SaslMechanism",
    "SecurityProtocol",
]
