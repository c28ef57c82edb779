"""Requests about groups, as they are encoded."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from asyncrevoke.client.groups import requests
from asyncrevoke.client.protocol import codec, messages


def test_a_request_takes_the_newest_version_that_both_support() -> None:
    request = requests.ListGroupsRequest()
    for highest, version, body in (
        (9, 5, b"\x01\x01\x00"),
        (4, 4, b"\x01\x00"),
        (3, 3, b"\x00"),
    ):
        assert codec.choose_version(requests.ListGroupsRequest, {16: (0, highest)}) == version
        assert codec.encode_request(request, version) == body
    with pytest.raises(codec.UnsupportedVersion, match="ListGroups"):
        codec.choose_version(requests.ListGroupsRequest, {16: (0, 2)})
    with pytest.raises(codec.UnsupportedVersion, match="does not offer ListGroups"):
        codec.choose_version(requests.ListGroupsRequest, {})
    header = codec.encode_header(requests.ListGroupsRequest, 5, 9, "me")
    assert header[:8] == struct.pack(">hhi", 16, 5, 9)


@pytest.mark.parametrize(("version", "everything"), [(5, b"\xff" * 4), (7, b"\x00"), (9, b"\x00")])
def test_all_committed_offsets_of_a_group_are_requested(version: int, everything: bytes) -> None:
    request = requests.committed("billing")
    assert everything in codec.encode_request(request, version)
    entity: Any = codec._dialect(messages.OffsetFetchRequest, version).build(request)
    assert (entity.groups[0] if version == 9 else entity).topics is None
