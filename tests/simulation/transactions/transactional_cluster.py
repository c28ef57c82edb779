"""The simulated cluster whose members process exactly once (KIP-447)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulation.cluster.simulated_cluster import SimulatedCluster
from simulation.invariants.oracle_state import Violation
from simulation.members.consumer_style import ConsumerStyle
from simulation.schedules.schedule import IncidentKind
from simulation.transactions.batch_blocks import BatchBlocks
from simulation.transactions.member_transactions import RESULTS, MemberTransactions
from simulation.transactions.transactional_brokers import TransactionalBrokers
from simulation.transactions.transactional_checker import TransactionalChecker
from typing_extensions import override

if TYPE_CHECKING:
    from collections.abc import Mapping

    from simulation.members.application import Application
    from simulation.schedules.schedule import Incident, Schedule
    from simulation.schedules.transaction_plan import TransactionPlan


class TransactionalCluster(SimulatedCluster):
    """The cluster of a schedule with a :class:`TransactionPlan`."""

    def __init__(self, schedule: Schedule) -> None:
        assert schedule.transactions is not None
        self._plan: TransactionPlan = schedule.transactions
        # Set by what the base class calls.
        self._transactional_brokers: TransactionalBrokers
        self._transactional_checker: TransactionalChecker
        super().__init__(schedule)

    @override
    def make_brokers(self) -> TransactionalBrokers:
        """The brokers of the group, and of transactions."""
        plan, markers = self._plan, self.rng("markers")
        brokers = TransactionalBrokers(
            self.clock,
            self.rng("brokers"),
            self.schedule.brokers,
            self.group,
            plan.version,
            check_interval=plan.check_interval,
            marker_delay=lambda: 0.001 + plan.marker_delay * markers.random(),
            fences_expired=plan.fences_expired,
        )
        brokers.create_output(RESULTS, plan.results)
        brokers.unknown_outcomes = plan.unknown_outcomes
        if plan.upgraded_at is not None:
            self.clock.at(plan.upgraded_at, brokers.upgrade_transactions)
        self._transactional_brokers = brokers
        return brokers

    @override
    def make_checker(self) -> TransactionalChecker:
        """What follows the run, with its results."""
        longest = self._plan.timeout + self._plan.check_interval
        brokers = self._transactional_brokers
        checker = TransactionalChecker(self.state, brokers, longest)
        brokers.follow(checker)
        self._transactional_checker = checker
        return checker

    @override
    def style_of(self, client: int, drawn: ConsumerStyle) -> ConsumerStyle:
        """Some members have blocks, the others handlers."""
        has_blocks = self.rng(f"blocks {client}").random() < self._plan.blocks
        return ConsumerStyle.LOOP if has_blocks else ConsumerStyle.TASKS

    @override
    def prepare(self, application: Application) -> None:
        """Let a new member commit in transactions."""
        transactions = MemberTransactions(
            application.member,
            application.calls,
            self._transactional_checker,
            self.network,
            self.brokers.bootstrap(),
        )
        transactions.on_failed(application.leave)
        application.tasks.transactions = transactions
        if application.style is ConsumerStyle.LOOP:
            application.blocks = BatchBlocks(
                application, self._transactional_checker, transactions, self._plan.failing_blocks
            )

    @override
    def pace_options(self) -> Mapping[str, object]:
        """How often members ask, and how they commit."""
        pace = {**super().pace_options()}
        del pace["commit_interval"]
        return pace | {
            "processing": "exactly_once",
            "transaction_timeout": self._plan.timeout,
            "transaction_interval": self._plan.interval,
        }

    @override
    def disturb_transactions(self, incident: Incident) -> None:
        """Something happens to the coordinator of transactions."""
        brokers = self._transactional_brokers
        if incident.kind is IncidentKind.MOVE_TRANSACTIONS:
            self.state.disturbed_until = max(
                self.state.disturbed_until, self.clock.now + incident.amount + 0.5
            )
            brokers.move_transactions(0.1 + incident.amount)
            return
        idle = [known.name for known in brokers.transactions.ids() if known.is_idle]
        if idle:
            brokers.transactions.forget(idle[incident.target % len(idle)])

    @override
    def end(self) -> None:
        """The run has ended."""
        for application in self.applications.values():
            if application.tasks.transactions is not None:
                application.tasks.transactions.end()

    @override
    def check_end(self) -> None:
        """All members have closed: all transactions end, and each result is there once."""
        coordinator = self._transactional_brokers.transactions

        def done() -> bool:
            return coordinator.is_at_rest

        deadline = self.clock.now + self._plan.timeout + self._plan.check_interval + 2.0
        if not (done() or self.clock.run_until(deadline, done)):
            raise Violation("X4", "a transaction is open long after all members have closed")
        self._transactional_checker.check_results()
