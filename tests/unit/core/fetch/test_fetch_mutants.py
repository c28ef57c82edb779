"""Each fault that is put into fetching makes a unit test fail."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from unit.core.fetch import test_fetch_errors as fetch_errors
from unit.core.fetch import test_fetch_invariants as invariants

from asyncrevoke.client.core.fetch.cursor import ReplicaChoice
from asyncrevoke.client.core.fetch.responses import FetchResponses, HandledResponse
from asyncrevoke.client.core.metadata.cluster import ClusterMetadata

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True)
class FetchMutant:
    name: str
    patch: Callable[[pytest.MonkeyPatch], None]
    caught_by: Callable[[], None]


def late_response_is_appended(patch: pytest.MonkeyPatch) -> None:
    take_in = FetchResponses.handle

    def believing(self: FetchResponses, now: float, handled: HandledResponse) -> bool:
        asked = {
            partition: entry._replace(offset=entry.buffer.fetch_position)
            for partition, entry in handled.fetch.targets.items()
        }
        handled.fetch = handled.fetch._replace(targets=asked)
        return take_in(self, now, handled)

    patch.setattr(FetchResponses, "handle", believing)


def leader_is_asked_with_the_rack(patch: pytest.MonkeyPatch) -> None:
    def never(_self: ReplicaChoice, _now: float) -> bool:
        return False

    patch.setattr(ReplicaChoice, "needs_leader", never)


def metadata_is_not_refreshed(patch: pytest.MonkeyPatch) -> None:
    refresh = ClusterMetadata.refresh

    def seldom(self: ClusterMetadata, now: float, reason: str) -> None:
        if "from replica" not in reason:
            refresh(self, now, reason)

    patch.setattr(ClusterMetadata, "refresh", seldom)


def unlisted_replica_is_tried_without_backoff(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("asyncrevoke.client.core.fetch.cursor._LONGEST_REPLICA_BACKOFF", 0.1)


def listed_replica_is_not_used(patch: pytest.MonkeyPatch) -> None:
    fall_back = ReplicaChoice.fall_back

    def forgetting(
        self: ReplicaChoice, now: float, *, attempt: float = 0.0, awaited: int = -1
    ) -> bool:
        del awaited
        return fall_back(self, now, attempt=attempt)

    patch.setattr(ReplicaChoice, "fall_back", forgetting)


def leader_that_sends_us_away_again_is_asked_at_once(patch: pytest.MonkeyPatch) -> None:
    fall_back = ReplicaChoice.fall_back

    def always_new(
        self: ReplicaChoice, now: float, *, attempt: float = 0.0, awaited: int = -1
    ) -> bool:
        fall_back(self, now, attempt=attempt, awaited=awaited)
        return True

    patch.setattr(ReplicaChoice, "fall_back", always_new)


def silent_replica_is_tried_as_often_as_one_that_rejects(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("asyncrevoke.client.core.fetch.cursor._SHARE_OF_ATTEMPTS", 1e9)


def sent_away_again() -> None:
    invariants.test_a_broker_that_sends_us_away_without_a_rack_too_is_asked_later_and_later(9)


MUTANTS = [
    FetchMutant(
        "a late response is appended after a corrupt batch was discarded",
        late_response_is_appended,
        fetch_errors.test_a_response_to_a_fetch_beyond_a_corrupt_batch_is_dropped_with_that_batch,
    ),
    FetchMutant(
        "the leader is asked with the rack while the replica cannot be used",
        leader_is_asked_with_the_rack,
        invariants.test_a_leader_that_names_itself_as_preferred_replica_is_asked_without_a_rack,
    ),
    FetchMutant(
        "the metadata is not refreshed for an unlisted replica",
        metadata_is_not_refreshed,
        invariants.test_while_the_preferred_replica_is_unknown_the_leader_is_read_and_metadata_is_refreshed,
    ),
    FetchMutant(
        "an unlisted replica is tried without backoff",
        unlisted_replica_is_tried_without_backoff,
        invariants.test_while_the_preferred_replica_is_unknown_the_leader_is_read_and_metadata_is_refreshed,
    ),
    FetchMutant(
        "a replica that is listed by now is not used",
        listed_replica_is_not_used,
        invariants.test_a_preferred_replica_is_read_as_soon_as_the_metadata_lists_it,
    ),
    FetchMutant(
        "a leader that sends us away without a rack too is asked at once",
        leader_that_sends_us_away_again_is_asked_at_once,
        sent_away_again,
    ),
    FetchMutant(
        "a silent replica is tried as often as one that rejects",
        silent_replica_is_tried_as_often_as_one_that_rejects,
        invariants.test_attempts_to_reach_a_replica_that_is_silent_take_a_small_share_of_the_time,
    ),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name for mutant in MUTANTS])
def test_a_mutant_makes_a_unit_test_fail_that_passes_without_it(mutant: FetchMutant) -> None:
    mutant.caught_by()
    with pytest.MonkeyPatch.context() as patch:
        mutant.patch(patch)
        with pytest.raises((AssertionError, KeyError, ValueError)):
            mutant.caught_by()
