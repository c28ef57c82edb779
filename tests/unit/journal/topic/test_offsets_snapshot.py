"""The offsets that groups had committed are kept with the journals that were collected."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from asyncrevoke.audit.offsets import AuditedGroupOffsets, known_offsets
from asyncrevoke.client.errors import ConfigError
from asyncrevoke.client.model import TopicPartition
from asyncrevoke.journal.topic.offsets_snapshot import (
    OffsetsSnapshot,
    read_snapshot,
    write_snapshot,
)

if TYPE_CHECKING:
    from pathlib import Path

AT = 1_800_000_000_000_000


def test_what_was_written_is_read(tmp_path: Path) -> None:
    offsets = {TopicPartition("orders", 0): 7, TopicPartition("orders", 3): 9}
    offsets[TopicPartition("bills", 0)] = 1
    write_snapshot(tmp_path, AT, {"billing": offsets, "idle": {}})
    assert read_snapshot(tmp_path, "billing", "orders") == OffsetsSnapshot({0: 7, 3: 9}, AT)
    assert read_snapshot(tmp_path, "billing", "clicks") is None
    assert read_snapshot(tmp_path, "idle", "orders") is None
    assert read_snapshot(tmp_path / "nothing", "billing", "orders") is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        '{"at_us": 1}',
        '{"at_us": 1, "groups": {"billing": []}}',
        '{"at_us": 1, "groups": {"billing": {"orders": {"a": 1}}}}',
        '{"at_us": 1, "groups": {"billing": {"orders": {"0": -1}}}}',
        '{"at_us": 1, "groups": {"billing": {"orders": {"-1": 1}}}}',
        '{"at_us": 1, "groups": {"billing": {"orders": {"99999999999": 1}}}}',
        '{"at_us": 1, "groups": {"billing": {"orders": {"0": 1e30}}}}',
        '{"at_us": 1, "groups": {"billing": {"orders": {"0": Infinity}}}}',
        '{"at_us": -1, "groups": {"billing": {"orders": {"0": 1}}}}',
        "[" * 100_000,
        " " * (2**23 + 1),
    ],
    ids=range(14),
)
def test_what_is_no_snapshot_says_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "committed.json").write_text(text)
    assert read_snapshot(tmp_path, "billing", "orders") is None


def test_a_link_is_rejected(tmp_path: Path) -> None:
    write_snapshot(tmp_path, AT, {})
    (tmp_path / "committed.json").rename(tmp_path / "other")
    (tmp_path / "committed.json").symlink_to(tmp_path / "other")
    with pytest.raises(ConfigError, match="is a symbolic link"):
        read_snapshot(tmp_path, "billing", "orders")


def test_the_broker_knows_more_than_a_snapshot() -> None:
    broker = AuditedGroupOffsets({0: 9}, "broker", AT)
    expired = AuditedGroupOffsets({}, "broker", AT)
    snapshot = OffsetsSnapshot({0: 7}, AT)
    assert known_offsets(broker, snapshot) == broker
    assert known_offsets(expired, None) == expired
    for without in (None, expired):
        assert known_offsets(without, snapshot) == AuditedGroupOffsets({0: 7}, "snapshot", AT)
