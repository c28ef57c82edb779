"""Replay yesterday's orders with the handlers of ``app:consumer``; for ``spark-submit``."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta

from asyncrevoke.spark import open_session, replay, resolve_ranges


def main() -> None:
    """Plan, replay, and say what came of it."""
    servers = os.environ.get("KAFKA", "localhost:9092")
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    yesterday = today - timedelta(days=1)
    topic = os.environ.get("TOPIC", "orders")
    ranges = resolve_ranges(servers, topic, start=yesterday, end=today, missing="clip")
    report = replay(
        open_session(),
        os.environ.get("TARGET", "app:consumer"),
        ranges,
        sink=os.environ.get("SINK", "replayed"),
        run_id=f"{yesterday:%Y-%m-%d}",
        bootstrap_servers=servers,
        max_errors=1000,
    )
    print(f"{report.records} records: {dict(report.outcomes)}")


if __name__ == "__main__":
    main()
