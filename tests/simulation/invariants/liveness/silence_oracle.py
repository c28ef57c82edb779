"""Oracle over connections that fall silent: members notice in time, and use others."""

from __future__ import annotations

from simulation.invariants.oracle_state import MemberView, OracleState, Violation

# Beyond the session: what a fault may cost.
_MARGIN = 5.0
# The broker's session timeout under KIP-848, which members do not receive.
_BROKERS_SESSION = 10.0


class SilenceOracle:
    """A session and five seconds after its connections have died, a member waits for no response on
    one of them, and has a heartbeat confirmed."""

    def __init__(self, state: OracleState) -> None:
        self._state = state

    def began(self, view: MemberView) -> None:
        """Nothing passes on the connections of this member from now on."""
        config = view.member.config
        classic = config.group_protocol == "classic"
        session = config.session_timeout if classic else _BROKERS_SESSION
        began_at = self._state.clock.now
        self._state.clock.after(session + _MARGIN, lambda: self._is_over(view, began_at))

    def _is_over(self, view: MemberView, began_at: float) -> None:
        state, member = self._state, view.member
        client = member.client
        if not member.alive or member.frozen or state.client_frozen.get(client):
            return
        waiting = state.network.swallowed(client, began_at)
        if waiting:
            raise Violation(
                "silence",
                f"client {client} still waits for responses on connections that died at "
                f"{began_at:.3f}: {waiting}",
            )
        # While it joins, it is a member by that.
        joins = member.config.group_protocol != "consumer" and view.join is not None
        confirmed = view.confirmed_at
        if not state.strict or view.closing or joins or view.generation < 0:
            return
        if confirmed <= began_at:
            raise Violation(
                "silence",
                f"client {client} has had no heartbeat confirmed since {confirmed:.3f}: its "
                f"connections died at {began_at:.3f}",
            )
