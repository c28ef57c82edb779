"""``asyncrevoke sink`` with a session timeout of 6 s: ``STEP NUMBER MOST ARGUMENTS``.

With the step ``before`` or ``after``, its process is killed before or after it stores files for the
NUMBERth time. No file may have more than MOST bytes (-1: any may).
"""

from __future__ import annotations

import os
import resource
import signal
import sys
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from asyncrevoke.cli import main
from asyncrevoke.cli.options.connection_options import ConnectionOptions
from asyncrevoke.cli.sink.delta_table import DeltaFolder
from asyncrevoke.cli.sink.parquet_folder import ParquetFolder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asyncrevoke.cli.sink.store import Closed

consumer_options = ConnectionOptions.consumer_options


def with_short_sessions(self: ConnectionOptions, **more: Any) -> Any:
    return consumer_options(self, **more, session_timeout=6.0, heartbeat_interval=0.5)


def kill_at(step: str, number: int, store: type[Any]) -> None:
    publish = store.publish
    count = 0

    def counted(self: Any, files: Sequence[Closed]) -> object:
        nonlocal count
        count += 1
        if count == number and step == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        refused = publish(self, files)
        if count == number and step == "after":
            os.kill(os.getpid(), signal.SIGKILL)
        return refused

    store.publish = counted


if __name__ == "__main__":
    step, number, most, *sys.argv[1:] = sys.argv[1:]
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(most), resource.RLIM_INFINITY))
    for store in (ParquetFolder, DeltaFolder):
        kill_at(step, int(number), store)
    with patch.object(ConnectionOptions, "consumer_options", with_short_sessions):
        main()
