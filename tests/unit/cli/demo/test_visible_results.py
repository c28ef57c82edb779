"""The demo compares the visible results with the records, and reports what differs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from unit.cli.demo.test_demo_parts import clean

from asyncrevoke.cli.demo.command import DemoOptions, GroupProtocolChoice, _mistake
from asyncrevoke.cli.demo.display.report import faults, print_json, print_result
from asyncrevoke.cli.demo.display.timeline import Panel, draw
from asyncrevoke.cli.demo.group_result import Produced, RecordId, VisibleResults
from asyncrevoke.cli.demo.member.handler_log import Client
from asyncrevoke.cli.demo.visible_results import judge
from asyncrevoke.cli.demo.workload import Invoice
from asyncrevoke.client.model import TopicPartition

if TYPE_CHECKING:
    import pytest

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
PRODUCED = [
    *(Produced(P0, offset, f"customer-{offset % 2}", 0.0) for offset in range(4)),
    Produced(P1, 0, "customer-9", 0.0),
]


def of(partition: int, offset: int) -> Invoice:
    key = f"customer-{offset % 2}" if partition == 0 else "customer-9"
    return Invoice(partition, offset, key)


ALL = [of(0, 0), of(1, 0), of(0, 1), of(0, 2), of(0, 3)]


def test_one_result_of_each_record_is_right_in_any_order_of_different_keys() -> None:
    assert judge(PRODUCED, ALL) == VisibleResults(5, (), (), ())
    assert judge(PRODUCED, [of(0, 1), of(0, 0), *ALL[3:], of(1, 0)]).out_of_order == ()
    assert judge([], []) == VisibleResults(0, (), (), ())


def test_missing_doubled_and_disordered_results_are_named() -> None:
    assert judge(PRODUCED, ALL[:-1]).missing == (RecordId(P0, 3),)
    assert judge(PRODUCED, [*ALL, of(0, 3)]) == VisibleResults(6, (), (RecordId(P0, 3),), ())
    late = judge(PRODUCED, [of(1, 0), of(0, 2), of(0, 0), of(0, 1), of(0, 3)])
    assert late == VisibleResults(5, (), (), (RecordId(P0, 0),))
    again = judge(PRODUCED, [*ALL, of(0, 0)])
    assert (again.doubled, again.out_of_order) == ((RecordId(P0, 0),), (RecordId(P0, 0),))


WRONG = VisibleResults(9, (RecordId(P0, 1),), (RecordId(P0, 2), RecordId(P0, 3)), ())


def test_missing_and_doubled_results_are_faults(capsys: pytest.CaptureFixture[str]) -> None:
    assert faults(clean(results=VisibleResults(10, (), (), ())), max_stall=1.0) == []
    result = clean(results=WRONG)
    found = faults(result, max_stall=1.0)
    assert found == ["1 without a visible result", "2 with several visible results"]
    print_result({Client.ASYNCREVOKE: result}, found, Path("timeline.svg"))
    assert "without a visible result" in capsys.readouterr().out
    print_json({Client.ASYNCREVOKE: result}, found, Path("timeline.svg"), None)
    printed = json.loads(capsys.readouterr().out)
    own = printed["asyncrevoke"]
    assert (printed["ok"], own["results_visible"], own["results_missing"]) == (False, 9, 1)
    assert (own["results_doubled"], own["results_out_of_order"]) == (2, 0)


def test_a_demo_without_results_reports_none(capsys: pytest.CaptureFixture[str]) -> None:
    print_result({Client.ASYNCREVOKE: clean()}, [], Path("timeline.svg"))
    print_json({Client.ASYNCREVOKE: clean()}, [], Path("timeline.svg"), None)
    assert "result" not in capsys.readouterr().out


def test_the_timeline_has_the_number_of_visible_results() -> None:
    panel = Panel(title="asyncrevoke", steps=(), handled=(), died={}, result=clean(results=WRONG))
    assert "9 visible results, 1 missing, 2 doubled" in draw([panel], 0.0)


def test_members_of_kip_848_groups_cannot_be_killed_in_the_demo() -> None:
    options = DemoOptions(exactly_once=True, protocol=GroupProtocolChoice.CONSUMER)
    assert (_mistake(options) or "").startswith("--exactly-once kills members")
    assert _mistake(DemoOptions(exactly_once=True)) is None
    assert DemoOptions(exactly_once=True, kill=True).kills == 2
    assert DemoOptions(exactly_once=True).stall_limit is None
    assert DemoOptions(exactly_once=True, max_stall=4).stall_limit == 4
