"""Each failure in a row doubles the delay before the next attempt."""

from __future__ import annotations

import pytest

from asyncrevoke.client.backoff import Backoff


def test_each_failure_doubles_the_delay_up_to_the_longest() -> None:
    backoff = Backoff(0.1, 1.0)
    assert [backoff.failed() for _ in range(6)] == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]


def test_a_success_resets_the_delay() -> None:
    backoff = Backoff(0.1, 1.0)
    assert not backoff.has_failed
    backoff.failed()
    backoff.failed()
    assert backoff.has_failed
    backoff.succeeded()
    assert not backoff.has_failed
    assert backoff.failed() == 0.1


def test_a_kind_of_failure_may_have_a_limit_of_its_own() -> None:
    backoff = Backoff(0.1, 0.2)
    assert [backoff.failed(0.4) for _ in range(4)] == [0.1, 0.2, 0.4, 0.4]
    assert backoff.failed() == 0.2


@pytest.mark.parametrize(("first", "longest"), [(0.0, 1.0), (2.0, 1.0)])
def test_a_delay_that_cannot_grow_is_an_error(first: float, longest: float) -> None:
    with pytest.raises(ValueError, match="cannot grow"):
        Backoff(first, longest)
