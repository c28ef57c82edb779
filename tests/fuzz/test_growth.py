"""The target `growth` objects to what is quadratic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from fuzz.targets import growth
from fuzz.targets.growth import CASES, Growth, GrowthError
from wire.frames.corrupt_records import fetched
from wire.frames.raw_batches import raw_batch, record

from asyncrevoke.client.producing.producer_core import ProducerCore
from asyncrevoke.client.protocol.records import decode_batches
from asyncrevoke.handlers.dead_letters import dead_letter, retry_message

if TYPE_CHECKING:
    from collections.abc import Callable

SIZE = 300


def slow(size: int) -> None:
    """Work that grows with ``size``; done ``size`` times, it is quadratic."""
    for _ in range(size):
        sum(range(3 * size))


def passed_over_for_each_result(patch: pytest.MonkeyPatch) -> None:
    """The producer passes over all lower partitions when a result is added."""
    append = ProducerCore.append

    def slower(self: ProducerCore, *args: Any) -> bool:
        sum(range(16 * args[2]))
        return append(self, *args)

    patch.setattr(ProducerCore, "append", slower)


def looked_up_in_a_list(patch: pytest.MonkeyPatch) -> None:
    """The records of a batch, or the headers of one, are compared with each other."""
    (batch,) = decode_batches(fetched(raw_batch(record())), read_committed=False)
    kind: Any = type(batch)
    decode = kind.decode

    def slower(self: object, *args: Any) -> Any:
        records = decode(self, *args)
        slow(max(len(records), len(records[0].headers)))
        return records

    patch.setattr(kind, "decode", slower)


def kept_twice(patch: pytest.MonkeyPatch) -> None:
    """A dead letter compares the former headers with each other."""
    kept = dead_letter._kept

    def slower(headers: Any) -> Any:
        slow(len(headers))
        return kept(headers)

    patch.setattr(dead_letter, "_kept", slower)


def remembered(patch: pytest.MonkeyPatch) -> None:
    """A copy of all headers is kept for each header."""
    history = retry_message.retry_history

    def larger(read: Any) -> Any:
        copies = [list(read.headers) for _ in read.headers]
        return history(read), copies

    patch.setattr(retry_message, "retry_history", larger)


@pytest.mark.parametrize(
    ("case", "mutant"),
    [
        (growth.partitions_of_results, passed_over_for_each_result),
        (growth.headers_of_a_record, looked_up_in_a_list),
        (growth.headers_of_records, looked_up_in_a_list),
        (growth.dead_letters, kept_twice),
        (growth.retries, remembered),
    ],
)
def test_a_quadratic_cost_is_found(
    case: Callable[[int], object],
    mutant: Callable[[pytest.MonkeyPatch], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = growth._FORM.pack(CASES.index(case), SIZE)
    Growth().check(data)
    mutant(monkeypatch)
    with pytest.raises(GrowthError, match=case.__name__):
        Growth().check(data)
