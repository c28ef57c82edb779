"""Assignment of a classic group's partitions: its leader decides, with one of these assignors."""

from asyncrevoke.client.core.assignors.assignor import (
    Assignment,
    Assignor,
    RackAwareAssignor,
    RebalanceProtocol,
    assign,
)
from asyncrevoke.client.core.assignors.member import Member
from asyncrevoke.client.core.assignors.ownership import OwnershipViolation, repair, withheld
from asyncrevoke.client.core.assignors.registry import ASSIGNORS, choose_protocol, find_assignors

__all__ = [
    "ASSIGNORS",
    "Assignment",
    "Assignor",
    "Member",
    "OwnershipViolation",
    "RackAwareAssignor",
    "RebalanceProtocol",
    "assign",
    "choose_protocol",
    "find_assignors",
    "repair",
    "withheld",
]
