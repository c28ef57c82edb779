"""The demo's schedule, load, logs, progress, report and picture."""

from __future__ import annotations

import itertools
import json
import xml.etree.ElementTree as ET
from pathlib import Path

import msgspec
import pytest

from asyncrevoke.cli.demo.display.rebalance import draw_rebalance
from asyncrevoke.cli.demo.display.report import facts, faults, print_json, print_result
from asyncrevoke.cli.demo.display.timeline import Panel, draw
from asyncrevoke.cli.demo.group import GroupProgress
from asyncrevoke.cli.demo.group_result import Disorder, GroupResult, Produced, RecordId, Stall
from asyncrevoke.cli.demo.member.handler_log import (
    Abandoned,
    Assigned,
    Client,
    Draining,
    Ended,
    HandlerLog,
    LogReader,
    Released,
    Started,
)
from asyncrevoke.cli.demo.workload import CUSTOMERS, Action, ScheduleStep, churn, orders
from asyncrevoke.client.model import TopicPartition

P0 = TopicPartition("orders", 0)
SVG = "{http://www.w3.org/2000/svg}"


def started(member: str, offset: int, at: float) -> Started:
    return Started(member=member, topic="orders", partition=0, offset=offset, key="k", at=at)


def ended(member: str, offset: int, at: float) -> Ended:
    return Ended(member=member, topic="orders", partition=0, offset=offset, key="k", at=at)


def clean(**changes: object) -> GroupResult:
    fields: dict[str, object] = {
        "produced": 10,
        "handled": 10,
        "lost": (),
        "unfinished": (),
        "repeated": (),
        "permitted_repeats": (),
        "uncommitted": (),
        "disorder": (),
        "stall": Stall(P0, "A", 1.0, 0.2),
        "hand_over": None,
        "latency_median": 0.03,
        "latency_p99": 2.5,
    }
    return GroupResult(**(fields | changes))  # type: ignore[arg-type]


class TestSchedule:
    def test_three_members_join_and_two_leave_within_the_seconds(self) -> None:
        steps = churn(36)
        assert [(step.at, step.action, step.member) for step in steps] == [
            (0, Action.JOIN, "A"),
            (6, Action.JOIN, "B"),
            (12, Action.JOIN, "C"),
            (18, Action.STOP, "A"),
            (24, Action.JOIN, "D"),
            (30, Action.STOP, "B"),
        ]

    @pytest.mark.parametrize(("kills", "killed"), [(0, []), (1, ["B"]), (2, ["A", "B"])])
    def test_the_last_ones_that_leave_are_killed(self, kills: int, killed: list[str]) -> None:
        steps = churn(36, kills=kills)
        assert [step.member for step in steps if step.action is Action.KILL] == killed


class TestLoad:
    def test_handlers_take_fifty_milliseconds_on_average_and_a_few_take_seconds(self) -> None:
        taken = list(itertools.islice(orders(), 20_000))
        slow = [order for order in taken if order.seconds > 1]
        assert sum(order.seconds for order in taken) / len(taken) == pytest.approx(0.05, rel=0.1)
        assert len(slow) / len(taken) == pytest.approx(0.01, abs=0.003)
        assert all(2 <= order.seconds <= 3 for order in slow)
        assert len({order.customer for order in taken}) == CUSTOMERS

    def test_same_seed_gives_the_same_orders(self) -> None:
        first, second = (list(itertools.islice(orders(3), 100)) for _ in range(2))
        assert first == second


class TestLog:
    def test_reader_sees_what_was_written_once(self, tmp_path: Path) -> None:
        log = HandlerLog(tmp_path / "log", "A")
        reader = LogReader(tmp_path / "log")
        with log.handling("orders", 3, 7, b"key"):
            (begun,) = reader.read()
        (end,) = reader.read()
        log.close()
        assert isinstance(begun, Started)
        assert (begun.member, begun.partition, begun.offset, begun.key) == ("A", 3, 7, "key")
        assert isinstance(end, Ended)
        assert end.at >= begun.at
        assert reader.read() == []

    def test_handler_that_raises_is_abandoned(self, tmp_path: Path) -> None:
        log = HandlerLog(tmp_path / "log", "A")
        with pytest.raises(RuntimeError), log.handling("orders", 0, 0, None):
            raise RuntimeError
        log.close()
        kinds = [type(event) for event in LogReader(tmp_path / "log").read()]
        assert kinds == [Started, Abandoned]

    def test_draining_is_written_when_it_changes(self, tmp_path: Path) -> None:
        log = HandlerLog(tmp_path / "log", "A")
        for count in (0, 2, 2, 1, 0):
            log.draining(count)
        log.close()
        events = LogReader(tmp_path / "log").read()
        assert [event.count for event in events if isinstance(event, Draining)] == [2, 1, 0]

    def test_half_a_line_waits_for_its_other_half(self, tmp_path: Path) -> None:
        path = tmp_path / "log"
        log = HandlerLog(path, "A")
        log.assigned([1])
        log.close()
        line = path.read_bytes()
        path.write_bytes(line[:10])
        reader = LogReader(path)
        assert reader.read() == []
        path.write_bytes(line)
        assert len(reader.read()) == 1

    def test_log_that_is_not_there_yet_is_empty(self, tmp_path: Path) -> None:
        assert LogReader(tmp_path / "log").read() == []


class TestProgress:
    def test_record_goes_from_waiting_over_in_flight_to_handled(self) -> None:
        progress = GroupProgress(1)
        progress.append([Produced(P0, 0, "k", 0.0)])
        assert (progress.partitions[0].waiting, progress.partitions[0].in_flight) == (1, 0)
        progress.update([started("A", 0, 0.1)])
        assert (progress.partitions[0].waiting, progress.partitions[0].in_flight) == (0, 1)
        assert progress.member("A").in_flight == 1
        progress.update([ended("A", 0, 0.2)])
        assert (progress.handled, progress.member("A").in_flight) == (1, 0)

    def test_call_before_the_acknowledgement_does_not_wait(self) -> None:
        progress = GroupProgress(1)
        progress.update([started("A", 0, 0.1)])
        progress.append([Produced(P0, 0, "k", 0.2)])
        assert progress.partitions[0].waiting == 0

    def test_repeated_record_is_handled_once(self) -> None:
        progress = GroupProgress(1)
        progress.append([Produced(P0, 0, "k", 0.0)])
        progress.update([started("A", 0, 0.1), ended("A", 0, 0.2)])
        progress.update([started("B", 0, 0.3), ended("B", 0, 0.4)])
        assert progress.handled == 1

    def test_partition_belongs_to_the_member_that_got_it_last(self) -> None:
        progress = GroupProgress(2)
        progress.update([Assigned(member="A", partitions=(0, 1), at=0)])
        progress.update([Assigned(member="B", partitions=(1,), at=2)])
        progress.update([Released(member="A", partitions=(1,), at=1)])
        assert [partition.owner for partition in progress.partitions.values()] == ["A", "B"]
        assert progress.member("A").partitions == {0}

    def test_ended_member_runs_nothing(self) -> None:
        progress = GroupProgress(1)
        progress.update([Assigned(member="A", partitions=(0,), at=0), started("A", 0, 0.1)])
        progress.ended("A", "killed")
        assert progress.partitions[0].in_flight == 0
        assert progress.member("A").gone


class TestReport:
    def test_a_clean_result_has_no_faults(self) -> None:
        assert faults(clean(), max_stall=1.0) == []
        assert facts(clean(), ok=True)["longest_stall"] == 0.2

    @pytest.mark.parametrize(
        ("changes", "fault"),
        [
            ({"lost": (RecordId(P0, 1),)}, "1 lost"),
            ({"unfinished": (RecordId(P0, 1),)}, "1 not handled in time"),
            ({"repeated": (RecordId(P0, 1),)}, "1 handled twice"),
            ({"uncommitted": (RecordId(P0, 1),)}, "1 handled and not committed"),
            (
                {"disorder": (Disorder(RecordId(P0, 1), RecordId(P0, 2), "k", "A"),)},
                "1 out of order",
            ),
            ({"stall": Stall(P0, "A", 1.0, 1.5)}, "a kept partition stalled for 1.50 s"),
        ],
    )
    def test_each_fault_is_reported(self, changes: dict[str, object], fault: str) -> None:
        (told,) = faults(clean(**changes), max_stall=1.0)
        assert told.startswith(fault)

    def test_permitted_duplicates_and_unlimited_stalls_are_no_faults(self) -> None:
        again = (RecordId(P0, 1),)
        assert faults(clean(repeated=again, permitted_repeats=again), max_stall=1.0) == []
        assert faults(clean(stall=Stall(P0, "A", 1.0, 9.0)), max_stall=None) == []


class TestPicture:
    def panel(self, title: str, stall: float) -> Panel:
        return Panel(
            title=title,
            steps=[ScheduleStep(0, Action.JOIN, "A"), ScheduleStep(5, Action.STOP, "A")],
            handled=[
                started("A", 0, 100.5),
                ended("A", 0, 100.6),
                started("A", 1, 104.0),
                ended("A", 1, 106.5),
            ],
            died={},
            result=clean(stall=Stall(P0, "A", 101.0, stall)),
        )

    def test_panels_show_titles_steps_calls_and_the_stall(self) -> None:
        svg = ET.fromstring(draw([self.panel("one", 3.0), self.panel("<two>", 0.1)], 100.0))
        texts = [element.text for element in svg.iter(f"{SVG}text")]
        assert "one" in texts
        assert "<two>" in texts
        assert texts.count("A joins") == 2
        assert "3.0 s" in texts
        assert "0.1 s" not in texts
        # Per panel: one path of the calls' beginnings, one of the long calls.
        assert len(list(svg.iter(f"{SVG}path"))) == 4

    def test_run_without_calls_is_drawn_too(self) -> None:
        empty = Panel(title="none", steps=[], handled=[], died={}, result=clean(stall=None))
        assert ET.fromstring(draw([empty], 0.0)).tag == f"{SVG}svg"


class TestRebalancePicture:
    def panel(self) -> Panel:
        """A has partition 0 all the time; partition 1 moves to B at 106."""
        handled = [
            each
            for number in range(40)
            for each in (
                started("A", number, 100.0 + number / 4 + (0.5 if number >= 24 else 0)),
                ended("A", number, 100.1 + number / 4 + (0.5 if number >= 24 else 0)),
            )
        ]
        moved = [
            msgspec.structs.replace(event, partition=1, member="A" if event.at < 106 else "B")
            for event in handled
        ]
        steps = [ScheduleStep(5 * n, Action.JOIN, name) for n, name in enumerate("ABC")]
        return Panel(
            title="one",
            steps=steps,
            handled=[*handled, *moved],
            died={},
            result=clean(stall=Stall(P0, "A", 106.0, 0.75)),
        )

    def test_each_partition_has_the_calls_of_both_members_and_the_run_its_stall(self) -> None:
        svg = ET.fromstring(draw_rebalance([self.panel()], 100.0))
        texts = [element.text for element in svg.iter(f"{SVG}text")]
        assert "longest stall of a kept partition in the run: 0.75 s" in texts
        kinds = [element.get("class") for element in svg.iter(f"{SVG}path")]
        assert kinds == ["old", "old", "new"]

    def test_there_are_colours_for_a_dark_background(self) -> None:
        svg = ET.fromstring(draw_rebalance([self.panel(), self.panel()], 100.0))
        (style,) = svg.iter(f"{SVG}style")
        assert "prefers-color-scheme: dark" in (style.text or "")
        known = {element.get("class") or "" for element in svg.iter()} - {""}
        for name in {part for candidate in known for part in candidate.split()}:
            assert f".{name} {{" in (style.text or "")


def test_results_are_printed_as_a_table_and_as_json(
    capsys: pytest.CaptureFixture[str],
) -> None:
    results = {
        Client.ASYNCREVOKE: clean(unfinished=(RecordId(P0, 1),)),
        Client.AIOKAFKA: clean(lost=(RecordId(P0, 2),)),
    }
    print_result(results, ["1 not handled in time"], Path("timeline.svg"))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["asyncrevoke", "aiokafka"]
    rows = {line.rstrip("0123456789 ").strip(): line.split()[-2:] for line in lines}
    assert rows["lost"] == ["0", "1"]
    assert rows["not handled in time"] == ["1", "0"]
    assert "handled, not committed" not in rows
    assert lines[-2:] == ["timeline: timeline.svg", "asyncrevoke failed: 1 not handled in time"]
    print_json(results, ["1 not handled in time"], Path("timeline.svg"), None)
    printed = json.loads(capsys.readouterr().out)
    assert (printed["ok"], printed["asyncrevoke"]["ok"], printed["aiokafka"]["ok"]) == (
        False,
        False,
        True,
    )
