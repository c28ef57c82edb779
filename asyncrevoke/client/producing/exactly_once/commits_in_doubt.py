"""How a transaction has ended whose commit is in doubt: the committed offsets say so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from asyncrevoke.client import log_events
from asyncrevoke.client.errors import RequestTimeoutError, TransactionError
from asyncrevoke.client.printable import named_error

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from asyncrevoke.client.core.commit.transactional_committer import ComposedOffsets
    from asyncrevoke.client.model import OffsetAndMetadata, TopicPartition
    from asyncrevoke.client.runtime.session.session import Session

# Most characters of an error in the log.
MOST_REASON: Final = 300


async def was_committed(
    session: Session,
    composed: ComposedOffsets,
    error: TransactionError,
    settle: Callable[[], Awaitable[None]],
) -> bool:
    """Whether a transaction with these offsets was committed, whose end is in doubt by ``error``.

    ``settle`` returns when no transaction is open any more. Asks until there is an answer.
    """
    _log(session, error)
    settled = False
    while True:
        changed = composed.changed()
        if not changed:
            return False
        try:
            if not settled:
                await settle()
                settled = True
            held = cast(
                "Mapping[TopicPartition, OffsetAndMetadata | None]",
                await session.ask(session.core.committed, list(changed)),
            )
        except (TransactionError, RequestTimeoutError) as again:
            _log(session, again)
            continue
        return any(
            (now := held.get(partition)) is not None
            and (now.offset, now.metadata) == (entry.offset, entry.metadata)
            for partition, entry in changed.items()
        )


def _log(session: Session, error: Exception) -> None:
    reason = named_error(error, MOST_REASON)
    log_events.TRANSACTION_IN_DOUBT.write_to(session.log, reason=reason)
