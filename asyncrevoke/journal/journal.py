"""The journal of a consumer: where it is written, and its options."""

from __future__ import annotations

import importlib.util
import os
import socket
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from asyncrevoke.client.errors import ConfigError, FatalError
from asyncrevoke.client.printable import shown_option
from asyncrevoke.journal.files import MOST_SEGMENT_BYTES, PRIVATE, create_folder, folder_mode
from asyncrevoke.journal.format.schema import VERSION, Content
from asyncrevoke.journal.session_id import new_session_id

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from asyncrevoke.journal.recording.recorder import Recorder
    from asyncrevoke.journal.recording.writer import Writer
    from asyncrevoke.journal.segments import JournalSession
    from asyncrevoke.journal.topic.kafka_sink import KafkaSink

_NEEDED = ("filelock", "pyarrow", "xxhash")
_CONTENTS = ("batches", "records", None)


class Journal:
    """Records what consumers do: ``Consumer(..., journal=Journal(path))``. Needs the extra
    ``journal``.

    Each consumer that is entered writes a log in its own folder below ``path``, so many workers may
    share ``path``. The log has attempts with their outcomes, accepted commits, assignments,
    revocations, losses and resets. A thread writes the log. Before the consumer sends a commit, the
    rows of the committed records are on disk (fsync), so that they exist even if the process is
    killed. If the log cannot be written, the consumer fails with a JournalError and sends no
    further commit.

    ``strict``: each handler is called only after a row about this call is on disk, so that the
    journal has even the calls that were running when their process was killed. Concurrent calls
    share a flush.

    ``content`` lets an audit compare keys and values with the topic. ``"batches"`` stores the
    checksums of the record batches, at no cost per record. ``"records"`` stores hashes of each key
    and value; these take longer than all other writing for a record, and can identify a single
    record that differs. None stores nothing.

    A log is sealed to Parquet at ``segment_bytes`` or ``segment_seconds``, and at the end. The next
    consumer that uses ``path`` seals the logs of a killed process.

    ``sink`` also sends the rows to a topic, and commits wait for that, too: for machines whose
    disks do not last. A TestConsumer sends nothing to the sink.

    ``mode`` has the permissions of new files (default ``0o600``); users who may read files may also
    enter their folders. ``0o640`` lets the group of the process read, for an audit by another user.
    The umask of the process may remove permissions. The permissions of an existing ``path`` do not
    change.

    Raises ConfigError.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        strict: bool = False,
        content: Content | None = "batches",
        segment_bytes: int = 64 * 2**20,
        segment_seconds: float = 900.0,
        sink: KafkaSink | None = None,
        mode: int = PRIVATE,
    ) -> None:
        missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
        if missing:
            raise ConfigError(
                f"a journal needs {', '.join(missing)}: pip install 'asyncrevoke[journal]'"
            )
        self.path = Path(path)
        if self.path.exists() and not self.path.is_dir():
            raise ConfigError(
                f"Journal({shown_option(str(path))}) needs a folder, but this is a file"
            )
        if not 1 <= segment_bytes <= MOST_SEGMENT_BYTES:
            raise ConfigError(f"segment_bytes={segment_bytes}: use 1 to {MOST_SEGMENT_BYTES}")
        if segment_seconds <= 0:
            raise ConfigError(f"segment_seconds={segment_seconds}: use more than 0")
        if content not in _CONTENTS:
            raise ConfigError(
                f'content={shown_option(content)}: use "batches" (checksums of record batches), '
                '"records" (hashes of each record), or None'
            )
        if mode & 0o600 != PRIVATE or mode & ~0o666:
            raise ConfigError(
                f"mode=0o{mode:o}: use 0o600, or 0o640 for a group that audits; the owner must be "
                "able to read and write, and files must not be executable"
            )
        self.strict = strict
        self.content: Content | None = content
        self._mode = mode
        self._segment_bytes = segment_bytes
        self._segment_seconds = segment_seconds
        self._sink = sink

    def __repr__(self) -> str:
        return f"Journal({str(self.path)!r}, strict={self.strict})"

    def begin(
        self, facts: Mapping[str, object], *, wall_clock: Callable[[], float] | None
    ) -> Recorder:
        """Open the journal of a consumer that is entered. See
        :class:`~asyncrevoke.client.runtime.hooks.recorders.SessionJournal`."""
        from asyncrevoke.journal.recording.recorder import Recorder
        from asyncrevoke.journal.segments import JournalSession

        now = time.time() if wall_clock is None else wall_clock()
        session = JournalSession(self.path / new_session_id(now))
        try:
            new_in = create_folder(self.path, self._mode)
            session.folder.mkdir(folder_mode(self._mode))
            lock = session.lock()
            lock.acquire(timeout=0)
        except OSError as error:
            raise ConfigError(f"the journal cannot be written to {self.path}: {error}") from error
        group = facts["group"]
        writer = partial(
            self._open_writer,
            session,
            group if isinstance(group, str) else None,
            (self.path, *new_in),
            release=lock.release,
            threaded=wall_clock is None,
        )
        known = {"version": VERSION, "host": socket.gethostname(), "pid": os.getpid(), **facts}
        clock = _since_the_epoch(wall_clock)
        return Recorder(known, clock, writer, strict=self.strict, content=self.content)

    def _open_writer(
        self,
        session: JournalSession,
        group: str | None,
        new_in: Sequence[Path],
        fail: Callable[[FatalError], object],
        *,
        release: Callable[[], None],
        threaded: bool,
    ) -> Writer:
        from asyncrevoke.journal.recording.log_file import LogFile
        from asyncrevoke.journal.recording.shipping import Shipping
        from asyncrevoke.journal.recording.writer import DirectWriter, ThreadWriter

        ships = threaded and self._sink is not None
        open_log = partial(
            LogFile,
            session,
            group,
            new_in=new_in,
            segment_bytes=self._segment_bytes,
            segment_seconds=self._segment_seconds,
            keep_frames=ships,
            hashed=self.content == "records",
            mode=self._mode,
        )
        if threaded:
            shipping = None if self._sink is None else Shipping(self._sink.copy(), session)
            others = partial(self._others, session)
            return ThreadWriter(open_log, others, fail, release, shipping)
        return DirectWriter(open_log, release)

    def _others(self, mine: JournalSession) -> Sequence[JournalSession]:
        from asyncrevoke.journal.segments import sessions

        return [session for session in sessions(self.path) if session != mine]


def _since_the_epoch(wall_clock: Callable[[], float] | None) -> Callable[[], int]:
    """A clock in microseconds that never goes back, even if the wall clock is changed."""
    if wall_clock is not None:
        return lambda: int(wall_clock() * 1e6)
    offset = time.time_ns() - time.monotonic_ns()
    monotonic_ns = time.monotonic_ns
    return lambda: (offset + monotonic_ns()) // 1000
