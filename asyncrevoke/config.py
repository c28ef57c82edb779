"""Every option of a consumer: its default, its unit, and its hazard."""

from asyncrevoke.client.config import (
    ASSIGNORS,
    CommitMode,
    ConsumerConfig,
    ConsumerOptions,
    GroupProtocol,
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
    "CommitMode",
    "ConsumerConfig",
    "ConsumerOptions",
    "GroupProtocol",
    "IsolationLevel",
    "NullKeys",
    "OffsetReset",
    "OnUnconfirmedMembership",
    "OrderBy",
    "OwnAssignor",
    "SaslMechanism",
    "SecurityProtocol",
]
