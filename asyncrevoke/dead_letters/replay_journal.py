"""The journal of replays: which dead letters were sent, and the offsets of their records.

JSON lines. Before dead letters are sent, a line is written with their offsets; when they are
acknowledged, a line with the offsets of their records. So after a crash in between, the next replay
knows which dead letters may have been sent. Of a transaction the lines have its number, by which
``replay_transactions.py`` finds out whether it was committed.
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
_LONGEST_ID: Final = 200
# Windows has neither flag.
_NO_LINK: Final[int] = getattr(os, "O_NOFOLLOW", 0)
_NO_WAIT: Final[int] = getattr(os, "O_NONBLOCK", 0)

_Offset: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=_MAX_INT64)]
_Number: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=_MAX_INT64)]


class _Begun(msgspec.Struct, tag="replay", tag_field="line"):
    version: int
    dead_letters: str


class _Transactions(msgspec.Struct, tag="transactions", tag_field="line"):
    transactional_id: Annotated[str, msgspec.Meta(min_length=1, max_length=_LONGEST_ID)]


class _Sending(msgspec.Struct, tag="sending", tag_field="line", omit_defaults=True):
    partition: int
    offsets: list[_Offset]
    transaction: _Number | None = None


class _Ended(msgspec.Struct, tag="transaction ended", tag_field="line"):
    transaction: _Number
    committed: bool


class _Sent(msgspec.Struct, tag="sent", tag_field="line"):
    partition: int
    offset: _Offset
    to_topic: str
    to_partition: int
    to_offset: int | None


class _NotSent(msgspec.Struct, tag="not sent", tag_field="line"):
    partition: int
    offset: _Offset


_Line = _Begun | _Transactions | _Sending | _Sent | _NotSent | _Ended


class ReplayJournal:
    """A journal file, used inside ``with`` by one process at a time. Only its owner may read it.

    A replay with an existing file does not send again the dead letters that were sent. Raises
    DeadLettersError if it is the journal of another topic, if it is damaged, or if another process
    writes to it. With ``read_only`` it is read as it is now, also while another process writes to
    it, and no file is made or changed.
    """

    def __init__(self, path: Path, topic: str, *, read_only: bool = False) -> None:
        self.path = path
        self._topic = topic
        self._read_only = read_only
        self._file: IO[bytes] | None = None
        self._encoder = msgspec.json.Encoder()
        self._sent: dict[int, array[int]] = {}
        self._in_doubt: dict[int, set[int]] = {}
        # The id of its transactions, the last one's number, and by number the dead letters of those
        # of which it has no end.
        self._transactional_id: str | None = None
        self._last_transaction = 0
        self._transactions: dict[int, dict[int, list[int]]] = {}

    def __enter__(self) -> Self:
        try:
            flags = os.O_RDONLY if self._read_only else os.O_RDWR | os.O_CREAT
            number = os.open(self.path, flags | _NO_LINK | _NO_WAIT, 0o600)
        except OSError as error:
            if self._read_only and isinstance(error, FileNotFoundError):
                return self
            raise DeadLettersError(f"the journal {self.path}: {error.strerror}") from error
        if not stat.S_ISREG(os.fstat(number).st_mode):
            os.close(number)
            raise DeadLettersError(f"the journal {self.path} is not a regular file")
        if self._read_only:
            with os.fdopen(number, "rb") as present:
                self._load(present)
            return self
        file = self._file = os.fdopen(number, "r+b")
        try:
            _lock(file, self.path)
            end = self._load(file)
            file.seek(end)
            file.truncate()
            if not end:
                self._write([_Begun(_VERSION, self._topic)])
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    @property
    def is_new(self) -> bool:
        """Whether it has no dead letter that was or may have been sent."""
        return not any(self._sent.values()) and not any(self._in_doubt.values())

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
        self._write([_Sending(partition, at) for partition, at in _by_partition(letters).items()])

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

    # --- transactions ----------------------------------------------------------------------------

    @property
    def transactional_id(self) -> str | None:
        """The id of the transactions of this journal; None if it has none."""
        return self._transactional_id

    def begin_transactions(self, transactional_id: str) -> None:
        """Write the id of the transactions that follow; on disk on return."""
        self._write([_Transactions(transactional_id)])
        self._transactional_id = transactional_id

    def begin_transaction(self, letters: Iterable[tuple[int, int]] = ()) -> int:
        """Write that the next transaction sends these dead letters (partition and offset); on disk
        on return. Returns its number, which is higher than all before."""
        self._last_transaction = number = self._last_transaction + 1
        places = _by_partition(letters).items()
        self._write([_Sending(partition, offsets, number) for partition, offsets in places])
        self._transactions[number] = dict(places)
        return number

    def transaction_ended(self, number: int, *, committed: bool) -> None:
        """Write whether a transaction was committed; on disk on return."""
        self._write([_Ended(number, committed)])
        for partition, offsets in self._end(number, committed=committed).items():
            self._sent[partition] = array("q", sorted({*self._sent[partition], *offsets}))

    def transaction_unknown(self, number: int) -> None:
        """Nothing can tell whether a transaction was committed: its dead letters stay in doubt."""
        places = self._transactions.pop(number).items()
        self._write([_Sending(partition, offsets) for partition, offsets in places])

    def unended_transactions(self) -> dict[int, frozenset[int]]:
        """The partitions of each transaction of which the journal does not have the end."""
        return {number: frozenset(places) for number, places in self._transactions.items()}

    def is_in_transaction(self, partition: int, offset: int) -> bool:
        """Whether this dead letter is in a transaction of which the journal does not have the
        end."""
        return any(offset in places.get(partition, ()) for places in self._transactions.values())

    def _end(self, number: int, *, committed: bool) -> dict[int, list[int]]:
        """Returns the offsets that are sent thereby; ``_sent`` is not in order any more."""
        places = self._transactions.pop(number, {})
        for partition, offsets in places.items():
            self._in_doubt.setdefault(partition, set()).difference_update(offsets)
            if committed:
                self._sent.setdefault(partition, array("q")).extend(offsets)
        return places if committed else {}

    # --- the file --------------------------------------------------------------------------------

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

    def _load(self, file: IO[bytes]) -> int:
        """Read the lines. Returns where they end; a crash may have left a part of one after it."""
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
        for partition, offsets in self._sent.items():
            self._sent[partition] = array("q", sorted(set(offsets)))
        return end

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
            case _Transactions(transactional_id=transactional_id):
                self._transactional_id = transactional_id
            case _Sending(partition=partition, offsets=offsets, transaction=number):
                self._in_doubt.setdefault(partition, set()).update(offsets)
                # Their end is told by the last line that has them.
                for places in self._transactions.values():
                    if partition in places and (again := {*places[partition]} & {*offsets}):
                        places[partition] = sorted({*places[partition]} - again)
                if number is not None:
                    self._last_transaction = max(self._last_transaction, number)
                    self._transactions.setdefault(number, {})[partition] = offsets
            case _Ended(transaction=number, committed=committed):
                self._end(number, committed=committed)
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


def _by_partition(letters: Iterable[tuple[int, int]]) -> dict[int, list[int]]:
    by_partition: dict[int, list[int]] = {}
    for partition, offset in letters:
        by_partition.setdefault(partition, []).append(offset)
    return by_partition


def _lock(file: IO[bytes], path: Path) -> None:
    """Lock the file until it is closed. Does nothing without ``fcntl``."""
    with suppress(ModuleNotFoundError):
        import fcntl

        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise DeadLettersError(f"another replay writes to {path}") from error
