"""The loop of an application that works on each batch in a block ``async with transaction()``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulation.transactions.member_transactions import BlockError

from asyncrevoke.client.errors import ConsumerClosedError, FatalError, TransactionError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Sequence

    from simulation.members.application import Application
    from simulation.transactions.member_transactions import MemberTransactions
    from simulation.transactions.transactional_checker import TransactionalChecker

    from asyncrevoke.client.model import Record


class BatchBlocks:
    """The blocks of one application, ``failing`` of which raise an exception."""

    def __init__(
        self,
        application: Application,
        checker: TransactionalChecker,
        transactions: MemberTransactions,
        failing: float,
    ) -> None:
        self._application = application
        self._member = application.member
        self._checker = checker
        self._transactions = transactions
        self._failing = failing
        self._open: asyncio.Task[None] | None = None
        self._leaves = False

    def begin(self, records: Sequence[Record], seconds: float, then: Callable[[], None]) -> None:
        """Work on a batch for so many seconds; ``then`` asks for the next one."""

        def ended(error: BaseException | None) -> None:
            self._open = None
            if error is not None or self._leaves:
                self._checker.block_failed(self._member, error)
            if self._leaves or isinstance(error, (FatalError, ConsumerClosedError)):
                self._application.close()
                return
            if error is not None and not isinstance(error, (BlockError, TransactionError)):
                raise error
            then()

        fails = self._member.rng.random() < self._failing
        self._open = self._transactions.work_on_batch(records, seconds, ended, fails=fails)

    def cancel(self) -> bool:
        """Cancel the open block, if there is one: the application closes when it has ended."""
        if self._open is None:
            return False
        if not self._leaves:
            self._leaves = True
            self._open.cancel()
        return True
