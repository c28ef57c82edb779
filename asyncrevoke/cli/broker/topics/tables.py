"""The tables of ``asyncrevoke topics``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrevoke.cli.groups.tables import table
from asyncrevoke.cli.terminal import add_row, print_line
from asyncrevoke.client.printable import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from asyncrevoke.cli.broker.topics.cluster_topics import TopicFacts, TopicSummary


def show_topics(console: Console, topics: Sequence[TopicSummary]) -> None:
    """Print all topics, one per line."""
    rows = table("topic", "partitions", "replicas", "offline", "behind")
    for column in rows.columns[1:]:
        column.justify = "right"
    for topic in topics:
        counts = topic.partitions, topic.replicas, topic.offline, topic.behind
        add_row(rows, topic.topic, *map(str, counts))
    console.print(rows)


def show_topic(console: Console, topic: TopicFacts) -> None:
    """Print one topic: its partitions, and what is set on it."""
    named = f", id {topic.topic_id}" if topic.topic_id else ""
    internal = ", internal" if topic.internal else ""
    size = counted(len(topic.partitions), "partition")
    print_line(console, f"{topic.topic}: {size}{named}{internal}")
    rows = table("partition", "leader", "replicas", "in sync", "start", "end")
    for column in rows.columns[4:]:
        column.justify = "right"
    for each in topic.partitions:
        add_row(
            rows,
            str(each.partition),
            "none" if each.leader is None else str(each.leader),
            " ".join(map(str, each.replicas)),
            " ".join(map(str, each.in_sync)),
            *("?" if offset is None else str(offset) for offset in (each.start, each.end)),
        )
    console.print(rows)
    if topic.config is None:
        print_line(console, "its configuration is not shown: grant DESCRIBE_CONFIGS on the topic")
    for name, value in (topic.config or {}).items():
        print_line(console, f"{name}={value or ''}")
