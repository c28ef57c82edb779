"""Our assignors beside Java's, run over the same groups."""

from __future__ import annotations

import shutil

import pytest
from interop.assignor_cases import VECTORS, assigned_by_java, case_of, random_groups, vectors
from interop.assignor_comparison import AssignedGroup, across_racks, differences

pytestmark = [
    pytest.mark.broker,
    pytest.mark.skipif(shutil.which("java") is None, reason="there is no java on PATH"),
]


def test_the_committed_vectors_are_what_java_says() -> None:
    assert VECTORS.read_text(encoding="utf-8") == vectors()


def test_groups_never_seen_before_are_assigned_as_java_does() -> None:
    groups = random_groups(1000, seed=2)
    answers = assigned_by_java(groups)
    cases = [case_of(group, answer) for group, answer in zip(groups, answers, strict=True)]
    # Java reads what we write, and would have written the same bytes.
    assert [case["group"]["members"] for case in cases] == [group["members"] for group in groups]
    found = [(case["group"], what) for case in cases for what in differences(case)]
    assert found == []
    # Where topics differ, as many members read in their racks as Java would have: more or fewer
    # in one group, but not in all together.
    counts = [both for case in cases if (both := across_racks(case)) is not None]
    assert len(counts) > 15
    assert sum(ours for ours, _ in counts) <= 1.1 * sum(java for _, java in counts)


def test_the_program_says_so_if_java_cannot_do_what_is_asked() -> None:
    unknown = AssignedGroup(assignor="no-such-assignor", partitions={}, members=[])
    with pytest.raises(RuntimeError, match="no-such-assignor"):
        assigned_by_java([unknown])
