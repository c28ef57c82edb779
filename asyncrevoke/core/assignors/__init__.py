"""Who gets which partition of a classic group: decided by its leader, with one of these rules."""

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
