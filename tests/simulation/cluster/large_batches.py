"""A record decoder that calls some batches large, so that the core has them decoded elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typing_extensions import override

from asyncrevoke.testing.fake_kafka.topics import SimulatedBatch, decode_simulated

if TYPE_CHECKING:
    from asyncrevoke.client.protocol.messages import FetchedPartition
    from asyncrevoke.client.protocol.records import RecordBatch

_LARGE = 2**21


class _LargeBatch(SimulatedBatch):
    __slots__ = ()

    @property
    @override
    def unpacked_size(self) -> int:
        return _LARGE


def decode_some_large(fetched: FetchedPartition, read_committed: bool) -> list[RecordBatch]:
    """Like :func:`decode_simulated`; some batches are large."""
    return [
        _LargeBatch(batch.base_offset, batch.next_offset, batch.count, batch.leader_epoch)
        if batch.base_offset % 5 == 2
        else batch
        for batch in decode_simulated(fetched, read_committed)
    ]
