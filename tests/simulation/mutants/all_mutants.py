"""All mutants that the seeded schedules must find."""

from __future__ import annotations

from simulation.mutants import (
    commit_mutants,
    core_mutants,
    kip848_mutants,
    lifespan_mutants,
    time_mutants,
    topic_mutants,
    transaction_mutants,
)

MUTANTS = [
    *kip848_mutants.MUTANTS,
    *core_mutants.MUTANTS,
    *topic_mutants.MUTANTS,
    *time_mutants.MUTANTS,
    *commit_mutants.MUTANTS,
    *lifespan_mutants.MUTANTS,
    *transaction_mutants.MUTANTS,
]
