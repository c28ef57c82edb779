"""How large a published record may be."""

from __future__ import annotations

import pytest
from unit.producing.test_producer_core import Setting

from asyncrevoke.client.errors import PublishError
from asyncrevoke.client.producing import producer_core


@pytest.mark.parametrize(
    ("key", "value", "headers"),
    [
        (None, b"x" * 101, []),
        (b"x" * 60, b"x" * 41, []),
        (b"x" * 101, None, []),
        (None, None, [("name", b"x" * 50), ("x" * 47, None)]),
    ],
)
def test_a_record_beyond_what_a_broker_reads_is_rejected(
    key: bytes | None,
    value: bytes | None,
    headers: list[tuple[str, bytes | None]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(producer_core, "LARGEST_RECORD", 100)
    setting = Setting()
    with pytest.raises(PublishError, match="the record has 101 bytes: a request takes at most 100"):
        setting.core.append(0.0, "t", 0, key, value, headers, 1_700_000_000_000, setting.sink, 1)
