"""The assignors by name, and the rebalance protocol that a list of them allows."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, cast

from asyncrevoke.client.core.assignors.assignor import Assignor, RebalanceProtocol
from asyncrevoke.client.core.assignors.cooperative_sticky import CooperativeStickyAssignor
from asyncrevoke.client.core.assignors.range import RangeAssignor
from asyncrevoke.client.core.assignors.round_robin import RoundRobinAssignor
from asyncrevoke.client.core.assignors.sticky import StickyAssignor
from asyncrevoke.client.errors import ConfigError
from asyncrevoke.client.printable import shown_option

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

ASSIGNORS: dict[str, Assignor] = {
    assignor.name: assignor
    for assignor in (
        RangeAssignor(),
        RoundRobinAssignor(),
        StickyAssignor(),
        CooperativeStickyAssignor(),
    )
}
"""The assignors that come with this library, by the names that Java gives them."""


def is_builtin(assignor: Assignor) -> bool:
    """Whether an assignor is one that comes with this library."""
    return ASSIGNORS.get(assignor.name) is assignor


def find_assignors(wanted: Iterable[object]) -> tuple[Assignor, ...]:
    """Names (or assignors of the user's own) as assignors, in the given order of preference.

    Raises ConfigError for an unknown name, a name given twice, or an empty list.
    """
    found: dict[str, Assignor] = {}
    for entry in wanted:
        assignor = _by_name(entry) if isinstance(entry, str) else cast("Assignor", entry)
        if assignor.name in found:
            raise ConfigError(
                f"assignors: {shown_option(assignor.name)} stands there twice; name each once"
            )
        found[assignor.name] = assignor
    if not found:
        raise ConfigError(f"assignors is empty: name at least one of {', '.join(ASSIGNORS)}")
    return tuple(found.values())


def choose_protocol(assignors: Sequence[Assignor]) -> RebalanceProtocol:
    """The highest rebalance protocol that all of ``assignors`` support (KIP-429).

    Which of them the group agrees on is known only after joining, so what a member does
    with its partitions before that must suit them all. Raises ConfigError if nothing does.
    """
    if not assignors:
        raise ConfigError(f"assignors is empty: name at least one of {', '.join(ASSIGNORS)}")
    common = frozenset(RebalanceProtocol).intersection(
        *(assignor.protocols for assignor in assignors)
    )
    if not common:
        what = "; ".join(
            f"{one.name} supports {', '.join(p.name for p in sorted(one.protocols)) or 'none'}"
            for one in assignors
        )
        raise ConfigError(
            f"assignors share no rebalance protocol ({what}): list only assignors with one in"
            " common, or let each of yours support EAGER as well during the rolling upgrade"
        )
    return max(common)


def _by_name(name: str) -> Assignor:
    assignor = ASSIGNORS.get(name)
    if assignor is not None:
        return assignor
    close = difflib.get_close_matches(name, ASSIGNORS, n=1, cutoff=0.4)
    hint = f"did you mean {close[0]!r}?" if close else f"use one of {', '.join(ASSIGNORS)}"
    raise ConfigError(f"assignors: there is no {shown_option(name)}; {hint}")
