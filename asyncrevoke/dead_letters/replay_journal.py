"""The journal of replays: which dead letters were sent, and the offsets of their records.

JSON lines. Before dead letters are sent, a line is written with their offsets; when they are
acknowledged, a line with the offsets of their records. So after a crash in between, the next replay
knows which dead letters may have been sent.
"""

from __future__ import annotations

import os
import stat
from array import array
from bisect import bisect_left
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Annotated, Final, Self, TypeAlias

import msgspec

from asyncrevoke.dead_letters.errors import DeadLettersError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from asyncrevoke.client.model import TopicPartition

_VERSION: Final = 1
_LONGEST_LINE: Final = 1 << 20
_MAX_INT64: Final = 2**63 - 1
# Windows has neither flag.
_NO_LINK: Final[int] = getattr(os, "O_NOFOLLOW", 0)
_NO_WAIT: Final[int] = getattr(os, "O_NONBLOCK", 0)

_Offset: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=_MAX_INT64)]


class _Begun(msgspec.Struct, tag="replay", tag_field="line"):
    version: int
    dead_letters: str


class _Sending(msgspec.Struct, tag="sending", tag_field="line"):
    partition: int
    offsets: list[_Offset]


class _Sent(msgspec.Struct, tag="sent", tag_field="line"):
    partition: int
    offset: _Offset
    to_topic: str
    to_partition: int
    to_offset: int | None


class _NotSent(msgspec.Struct, tag="not sent", tag_field="line"):
    partition: int
    offset: _Offset


_Line = _Begun | _Sending | _Sent | _NotSent


class ReplayJournal:
    """A journal file, used inside ``with`` by one process at a time. Only its owner may read it.

    A replay with an existing file does not send again the dead letters that were sent. Raises
    DeadLettersError if it is the journal of another topic, if it is damaged, or if another process
    writes to it.
    """

    def __init__(self, path: Path, topic: str) -> None:
        self.path = path
        self._topic = topic
        self._file: IO[bytes] | None = None
        self._encoder = msgspec.json.Encoder()
        self._sent: dict[int, array[int]] = {}
        self._in_doubt: dict[int, set[int]] = {}

    def __enter__(self) -> Self:
        try:
            flags = os.O_RDWR | os.O_CREAT | _NO_LINK | _NO_WAIT
            number = os.open(self.path, flags, 0o600)
        except OSError as error:
            raise DeadLettersError(f"the journal {self.path}: {error.strerror}") from error
        if not stat.S_ISREG(os.fstat(number).st_mode):
            os.close(number)
            raise DeadLettersError(f"the journal {self.path} is not a regular file")
        file = self._file = os.fdopen(number, "r+b")
        try:
            _lock(file, self.path)
            self._load(file)
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def has_sent(self, partition: int, offset: int) -> bool:
        """Whether this dead letter was sent before."""
        offsets = self._sent.get(partition)
        if offsets is None:
            return False
        at = bisect_left(offsets, offset)
        return at < len(offsets) and offsets[at] == offset

    def is_in_doubt(self, partition: int, offset: int) -> bool:
        """Whether a replay that crashed or got no response may have sent this dead letter."""
        return offset in self._in_doubt.get(partition, ())

    def highest(self, partition: int) -> int:
        """The highest offset of a partition in the journal; -1 if there is none."""
        sent, doubtful = self._sent.get(partition), self._in_doubt.get(partition)
        return max(sent[-1] if sent else -1, max(doubtful, default=-1) if doubtful else -1)

    def sending(self, letters: Iterable[tuple[int, int]]) -> None:
        """Write that these dead letters (partition and offset) will be sent; on disk on return."""
        by_partition: dict[int, list[int]] = {}
        for partition, offset in letters:
            by_partition.setdefault(partition, []).append(offset)
        self._write([_Sending(partition, offsets) for partition, offsets in by_partition.items()])

    def ended(
        self,
        sent: Sequence[tuple[int, int, TopicPartition, int]],
        not_sent: Iterable[tuple[int, int]],
    ) -> None:
        """Write the ends of dead letters; on disk on return.

        ``sent`` are acknowledged (partition, offset, and the partition and offset of the record),
        ``not_sent`` are certainly not written.
        """
        lines: list[_Line] = [
            _Sent(partition, offset, *where, at if at >= 0 else None)
            for partition, offset, where, at in sent
        ]
        self._write([*lines, *(_NotSent(*fields) for fields in not_sent)])

    def _write(self, lines: Sequence[_Line]) -> None:
        if self._file is None:
            raise DeadLettersError(f"the journal {self.path} is closed")
        try:
            self._file.write(b"".join(self._encoder.encode(line) + b"\n" for line in lines))
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise DeadLettersError(
                f"the journal {self.path} cannot be written: {error.strerror}"
            ) from error

    def _load(self, file: IO[bytes]) -> None:
        decoder = msgspec.json.Decoder(_Line)
        begun = self._encoder.encode(_Begun(_VERSION, self._topic))
        end, first = 0, True
        while line := file.readline(_LONGEST_LINE):
            if not line.endswith(b"\n"):
                if len(line) >= _LONGEST_LINE or (first and not begun.startswith(line)):
                    raise self._damaged(end)
                break  # a crash during the write: nothing was sent after it
            try:
                entry = decoder.decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                raise self._damaged(end) from error
            self._take(entry, end, first=first)
            first = False
            end = file.tell()
        file.seek(end)
        file.truncate()
        for partition, offsets in self._sent.items():
            self._sent[partition] = array("q", sorted(set(offsets)))
        if first:
            self._write([_Begun(_VERSION, self._topic)])

    def _take(self, entry: _Line, at: int, *, first: bool) -> None:
        match entry:
            case _Begun(version=version, dead_letters=topic):
                if not first or version != _VERSION:
                    raise self._damaged(at)
                if topic != self._topic:
                    raise DeadLettersError(
                        f"{self.path} is the journal of {topic}, not of {self._topic}: name "
                        "another file: journal=PATH"
                    )
            case _ if first:
                raise self._damaged(at)
            case _Sending(partition=partition, offsets=offsets):
                self._in_doubt.setdefault(partition, set()).update(offsets)
            case _Sent(partition=partition, offset=offset):
                self._in_doubt.setdefault(partition, set()).discard(offset)
                self._sent.setdefault(partition, array("q")).append(offset)
            case _NotSent(partition=partition, offset=offset):
                self._in_doubt.setdefault(partition, set()).discard(offset)

    def _damaged(self, at: int) -> DeadLettersError:
        return DeadLettersError(
            f"{self.path} is not a journal of replays, or is damaged at byte {at}. With another "
            "file, journal=PATH, what this one has sent is sent again"
        )

    def _close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()


def _lock(file: IO[bytes], path: Path) -> None:
    """Lock the file until it is closed. Does nothing without ``fcntl``."""
    with suppress(ModuleNotFoundError):
        import fcntl

        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise DeadLettersError(f"another replay writes to {path}") from error
