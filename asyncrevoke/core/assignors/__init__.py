"""Assignment of a classic group's partitions: its leader decides, with one of these assignors."""

from asyncrevoke.core.assignors.assignor import (
    Assignment,
    Assignor,
    RackAwareAssignor,
    RebalanceProtocol,
    assign,
)
from asyncrevoke.core.assignors.member import Member
from asyncrevoke.core.assignors.ownership import OwnershipViolation, repair, withheld
from asyncrevoke.core.assignors.registry import ASSIGNORS, choose_protocol, find_assignors

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
