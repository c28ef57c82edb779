"""What is shown while a broker is downloaded and started."""

from __future__ import annotations

import io

from rich.console import Console

from asyncrevoke.broker.installation.jars import KAFKA_VERSION, Progress
from asyncrevoke.cli.broker.command import start_display


def test_without_a_terminal_each_step_is_one_line() -> None:
    written = io.StringIO()
    with start_display(Console(file=written)) as on_progress:
        assert written.getvalue() == f"Starting Apache Kafka {KAFKA_VERSION}\n"
        for done in (0, 50, 100):
            on_progress(Progress(done, 100))
    assert written.getvalue() == (
        f"Starting Apache Kafka {KAFKA_VERSION}\nDownloading Apache Kafka {KAFKA_VERSION} (once)\n"
    )
