"""What an assignor of one's own needs: the protocol to implement, and the assignors that exist."""

from asyncrevoke.client.core.assignors import ASSIGNORS, Assignor, Member, RebalanceProtocol

__all__ = ["ASSIGNORS", "Assignor", "Member", "RebalanceProtocol"]
