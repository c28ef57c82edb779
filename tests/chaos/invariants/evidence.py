"""Collects the evidence of a run for its checks, and keeps it if a run has failed."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import time
from typing import TYPE_CHECKING, Any

from chaos.environment.group import CONCURRENCY
from chaos.invariants.run_checker import Commit, Ending, RunObservations

from asyncrevoke.audit import local_engine
from asyncrevoke.audit.audited_group import isolation_level_of
from asyncrevoke.audit.offsets import Range, read_group_offsets
from asyncrevoke.audit.topic.topic import Topic
from asyncrevoke.cli.demo.workload import now
from asyncrevoke.client.config import ConsumerConfig
from asyncrevoke.client.model import TopicPartition
from asyncrevoke.journal.reading import read_journal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from chaos.environment.group import ChaosGroup
    from chaos.environment.proxied_brokers import Stage
    from chaos.environment.traffic import Traffic
    from chaos.invariants.run_checker import RunResult

    from asyncrevoke.audit.offsets import AuditedGroupOffsets
    from asyncrevoke.audit.results.audit_result import AuditResult
    from asyncrevoke.journal.reading import JournalContent

BROKER_LINES = 400


async def observe_run(
    stage: Stage, group: ChaosGroup, traffic: Traffic, *, compared: bool, trimmed: bool
) -> RunObservations:
    """Everything that is known after a run.

    ``compared``: the topic can be compared with the journals (it was not made anew in between).
    ``trimmed``: the log may have lost records by retention or compaction, which nobody has to
    handle.
    """
    # Before the journals: their rows are on disk before a commit is sent.
    config = ConsumerConfig(bootstrap_servers=stage.direct)
    offsets = await read_group_offsets(config, group.name, group.topic)
    content = await asyncio.to_thread(read_journal, group.journal)
    produced = traffic.produced
    if trimmed:
        kept = await kept_offsets(stage, group.topic)
        produced = [record for record in produced if (record.partition, record.offset) in kept]
    rows = _rows(content, group)
    return RunObservations(
        produced=produced,
        handled=group.events,
        committed={**group.committed_before, **await stage.committed(group.name)},
        died=group.died,
        endings=[*group.endings, *_losses(group.topic, rows)],
        commits=[Commit(row["member"], row["at"]) for row in rows if row["kind"] == "COMMIT"],
        failures=group.failures,
        longest_exit=group.longest_exit,
        audited=await _audited(config, group, content, offsets) if compared else None,
        concurrency=CONCURRENCY,
        stored=group.stored_offsets(),
        pausing=ConsumerConfig().on_unconfirmed_membership == "pause",
    )


async def _audited(
    config: ConsumerConfig, group: ChaosGroup, content: JournalContent, offsets: AuditedGroupOffsets
) -> AuditResult:
    name, sessions = local_engine.group_and_sessions(content, group.topic, group.name)
    level = isolation_level_of(sessions, offsets)
    topic = await Topic.of(group.topic, config, isolation_level=level)
    return await local_engine.audit(content, topic, group.topic, group=name, group_offsets=offsets)


async def kept_offsets(stage: Stage, topic: str) -> set[tuple[TopicPartition, int]]:
    """What the log has now, after retention and compaction."""
    found: set[tuple[TopicPartition, int]] = set()
    config = ConsumerConfig(bootstrap_servers=stage.direct)

    def take(rows: Any) -> None:
        parts, offsets = rows["part"].to_pylist(), rows["off"].to_pylist()
        found.update((TopicPartition(topic, p), o) for p, o in zip(parts, offsets, strict=True))

    source = await Topic.of(topic, config, isolation_level="read_committed")
    ranges = [Range(number, *bounds) for number, bounds in source.bounds.items()]
    await source.read(
        [offset_range for offset_range in ranges if offset_range.lo < offset_range.hi], take
    )
    return found


def _rows(content: JournalContent, group: ChaosGroup) -> list[dict[str, Any]]:
    """The journals' rows of commits and losses, with the member's name, by the handlers' clock."""
    by_pid = {member.process.pid: member.name for member in group.members.values()}
    names = {state.name: by_pid.get(state.facts.get("pid", -1), "?") for state in content.sessions}
    shift = time.time() - now()
    columns = ["session_id", "kind", "at_us", "partition", "offset", "outcome"]
    found: list[dict[str, Any]] = []
    for row in content.table.select(columns).to_pylist():
        lost = row["kind"] == "LOST"
        if lost or (row["kind"] == "COMMIT" and row["outcome"] == "ok"):
            at = row["at_us"] / 1e6 - shift
            found.append({**row, "member": names[row["session_id"]], "at": at})
    return sorted(found, key=lambda row: row["at"])


def _losses(topic: str, rows: Iterable[Mapping[str, Any]]) -> list[Ending]:
    """What was lost together, with what had been committed by then."""
    committed: dict[TopicPartition, int] = {}
    endings: list[Ending] = []
    for row in rows:
        place = TopicPartition(topic, row["partition"])
        if row["kind"] == "COMMIT":
            committed[place] = max(committed.get(place, 0), row["offset"])
            continue
        last = endings[-1] if endings else None
        if last is not None and last.member == row["member"] and row["at"] - last.at < 0.01:
            endings[-1] = last._replace(partitions=(last.partitions or frozenset()) | {place})
        else:
            endings.append(
                Ending("lost", row["member"], row["at"], dict(committed), frozenset((place,)))
            )
    return endings


def keep(
    folder: Path,
    stage: Stage,
    observations: RunObservations,
    result: RunResult,
    told: Mapping[str, object],
    logged_from: Sequence[int],
) -> None:
    """Write down what a failed run was and what was found.

    Members' logs, handler logs, journals and the proxies' log are in ``folder`` already.
    ``logged_from`` says where each broker's log began for this run.
    """
    for broker, begin in zip(stage.brokers, logged_from, strict=True):
        with broker.log_path.open("rb") as file:
            file.seek(begin)
            text = file.read()
        (folder / f"broker-{broker.node_id}.log").write_bytes(text)
    found = {
        **told,
        "result": dataclasses.asdict(result),
        "endings": [str(ending) for ending in observations.endings],
        "committed": {str(place): offset for place, offset in observations.committed.items()},
        "died": dict(observations.died),
    }
    (folder / "run.json").write_text(json.dumps(found, indent=2, default=str), encoding="utf-8")
    lines = [json.dumps([*record.partition, *record[1:]]) for record in observations.produced]
    (folder / "acknowledged.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    if observations.audited is not None:
        from asyncrevoke.audit.results.report import write_report

        write_report(observations.audited, folder / "audit")
