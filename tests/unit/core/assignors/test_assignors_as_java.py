"""What Java's assignors made of random groups (``tests/interop/assignor_cases.py``)."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from interop.assignor_comparison import (
    AssignedGroup,
    Case,
    differences,
    members_of,
    racks_of,
    same_topics,
)

from asyncrevoke.client.core.assignors import ASSIGNORS, assign
from asyncrevoke.client.model import TopicPartition

if TYPE_CHECKING:
    from interop.assignor_cases import UserDataQuestion


class _Vectors(TypedDict):
    kafka: str
    user_data: list[tuple[UserDataQuestion, str]]
    cases: list[Case]


def _vectors() -> _Vectors:
    path = Path(__file__).parent / "data" / "assignments.json"
    vectors: _Vectors = json.loads(path.read_text(encoding="utf-8"))
    return vectors


def test_every_assignor_does_what_javas_does() -> None:
    cases = _vectors()["cases"]
    assert [(case["group"], what) for case in cases for what in differences(case)] == []


def test_the_cases_hold_something_of_everything() -> None:
    cases = _vectors()["cases"]
    for assignor in ASSIGNORS:
        of_it = [case["group"] for case in cases if case["group"]["assignor"] == assignor]
        assert any(same_topics(members_of(group)) for group in of_it)
        assert any(not same_topics(members_of(group)) for group in of_it)
        assert any(len(group["members"]) > 12 for group in of_it)
        assert any(instance for group in of_it for _, instance, _ in group["members"])
        if assignor != "roundrobin":
            assert any(map(_racks_decide, of_it))
    assert any("plan" in case for case in cases)


def _racks_decide(group: AssignedGroup) -> bool:
    assignor, members = ASSIGNORS[group["assignor"]], members_of(group)
    sizes = {topic: range(count) for topic, count in group["partitions"].items()}
    with_racks = assign(assignor, sizes, members, racks_of(group))
    return with_racks != assign(assignor, sizes, members, {})


def test_the_user_data_is_javas() -> None:
    for question, written in _vectors()["user_data"]:
        owned = [TopicPartition("orders", number) for number in question["partitions"]]
        data = ASSIGNORS[question["assignor"]].user_data(question["generation"], owned)
        assert data == base64.b64decode(written)
