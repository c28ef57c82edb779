"""Where consumers write down what they do."""

from __future__ import annotations

import importlib.util
import os
import socket
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from asyncrevoke.errors import ConfigError
from asyncrevoke.journal.files import MOST_SEGMENT_BYTES, PRIVATE, folder_mode
from asyncrevoke.journal.format.schema import VERSION
from asyncrevoke.journal.session_id import new_session_id
from asyncrevoke.printable import shown_option

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from asyncrevoke.journal.format.schema import Content
    from asyncrevoke.journal.recording.recorder import Recorder
    from asyncrevoke.journal.recording.writer import Writer
    from asyncrevoke.journal.segments import JournalSession
    from asyncrevoke.journal.topic.kafka_sink import KafkaSink
    from asyncrevoke.runtime.hooks.journal_hooks import FailsConsumer

_NEEDED = ("filelock", "pyarrow", "xxhash")
_CONTENTS = ("batches", "records", None)


class Journal:
    """Writes down what consumers do, for ``Consumer(..., journal=Journal(path))``.

    Attempts with their outcome, accepted commits, assignments, revokes, losses and resets are
    appended to a log below ``path``, in a folder of its own for each consumer that is entered, so
    that many workers may share ``path``. A thread writes; what a commit covers is on disk (fsync)
    before that commit is sent, so that what was committed can be shown to have been done, also
    after the process was killed. What cannot be written ends the consumer with a JournalError,
    and nothing is committed beyond it.

    ``strict``: also that a handler is about to be called is on disk before it is. Then even a call
    that dies with its process is known; it costs a flush per call, shared by those that wait.

    ``content`` lets an audit compare keys and values with those of the topic. It is
    ``"batches"``: the checksums of the record batches that came from the broker, at no cost per
    record. Or ``"records"``: hashes of each key and value, which take longer than all else that is
    written of a record, and name a single one that differs. Or None: nothing.

    A log is sealed, to Parquet, at ``segment_bytes`` or ``segment_seconds``, and at the end. What a
    killed process has left is sealed when ``path`` is next used.

    ``sink``: what is written also goes to a topic, and a commit waits for that as well: for
    machines whose disks do not last. Nothing is sent while a TestConsumer has the consumer.

    ``mode`` has the permissions of new files, ``0o600`` by default; folders can be entered by those
    who may read their files. ``0o640`` lets the group of the process read, for an audit by another
    user. Files have it from the beginning; the umask of the process can take permissions away, and
    never adds any. A folder ``path`` that exists stays as it is.

    Needs the extra ``journal``. Raises ConfigError.
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
                f"Journal({shown_option(str(path))}): that is a file, a folder is needed"
            )
        if not 1 <= segment_bytes <= MOST_SEGMENT_BYTES:
            raise ConfigError(
                f"segment_bytes={segment_bytes}: at least 1, and at most {MOST_SEGMENT_BYTES}"
            )
        if segment_seconds <= 0:
            raise ConfigError(f"segment_seconds={segment_seconds}: more than 0")
        if content not in _CONTENTS:
            raise ConfigError(
                f'content={shown_option(content)}: "batches" (checksums of record batches), '
                '"records" (hashes '
                "of each record), or None"
            )
        if mode & 0o600 != PRIVATE or mode & ~0o666:
            raise ConfigError(
                f"mode=0o{mode:o}: the owner has to read and write, and files are not executable: "
                "0o600, or 0o640 for a group that audits"
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
        """A consumer is entered; see :class:`~asyncrevoke.runtime.hooks.journal_hooks.Journal`."""
        from asyncrevoke.journal.recording.recorder import Recorder
        from asyncrevoke.journal.segments import JournalSession

        now = time.time() if wall_clock is None else wall_clock()
        session = JournalSession(self.path / new_session_id(now))
        try:
            self.path.mkdir(folder_mode(self._mode), parents=True, exist_ok=True)
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
        consumer: FailsConsumer,
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
            segment_bytes=self._segment_bytes,
            segment_seconds=self._segment_seconds,
            keep_frames=ships,
            hashed=self.content == "records",
            mode=self._mode,
        )
        if threaded:
            shipping = None if self._sink is None else Shipping(self._sink.copy(), session)
            others = partial(self._others, session)
            return ThreadWriter(open_log, others, consumer, release, shipping)
        return DirectWriter(open_log, release)

    def _others(self, mine: JournalSession) -> Sequence[JournalSession]:
        from asyncrevoke.journal.segments import sessions

        return [session for session in sessions(self.path) if session != mine]


def _since_the_epoch(wall_clock: Callable[[], float] | None) -> Callable[[], int]:
    """Microseconds that only grow, whatever is done to the wall clock."""
    if wall_clock is not None:
        return lambda: int(wall_clock() * 1e6)
    offset = time.time_ns() - time.monotonic_ns()
    monotonic_ns = time.monotonic_ns
    return lambda: (offset + monotonic_ns()) // 1000
