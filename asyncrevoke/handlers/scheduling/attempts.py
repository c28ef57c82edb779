"""The attempts at records and batches, and the pauses of partitions until one succeeds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, TimerHandle

    from asyncrevoke.client.model import FailurePause, TopicPartition
    from asyncrevoke.handlers.policy.batch import Item, Unsent
    from asyncrevoke.handlers.policy.registration import Handler
    from asyncrevoke.handlers.scheduling.backlog import Backlog
    from asyncrevoke.handlers.scheduling.partition_lanes import Entry


class AttemptState:
    """The attempts at one item; ``calls`` counts the calls made so far.

    ``unsent``: no further call is made; the record is written to another topic. ``fails_with``: the
    record cannot be read, or has no lane; it fails with this error when a worker takes it.
    ``result_error``: the result of the last call, or the record itself, could not be published; the
    record fails with this error when a worker takes it. ``handler``: the chosen one of a topic with
    several handlers, or the one whose result has failed; otherwise None.
    """

    __slots__ = ("calls", "fails_with", "handler", "result_error", "unsent")

    def __init__(
        self,
        calls: int,
        fails_with: BaseException | None = None,
        handler: Handler | None = None,
    ) -> None:
        self.handler = handler
        self.calls = calls
        self.fails_with = fails_with
        self.unsent: Unsent | None = None
        self.result_error: BaseException | None = None

    @property
    def has_started(self) -> bool:
        """Whether the handler was called before."""
        return self.calls > 0 or self.unsent is not None

    def start_call(self) -> int:
        """Count a call that begins now, and return its number."""
        self.calls += 1
        return self.calls

    def result_failed(self, error: BaseException) -> None:
        """The result of the last call could not be published."""
        self.result_error = error

    def take_result_error(self) -> BaseException | None:
        """Return ``result_error``, and clear it."""
        error, self.result_error = self.result_error, None
        return error

    def send_elsewhere(self, unsent: Unsent) -> None:
        """The last call has failed, and the record goes to another topic."""
        self.unsent = unsent


# A record that has not failed, whose first call is traced.
TRACED: Final = AttemptState(0)


class RetryQueue:
    """Entries that wait for their next attempt. Each keeps its lane busy, without a worker.

    An entry stays in the queue until a worker begins the attempt.
    """

    def __init__(self, clock: AbstractEventLoop, backlog: Backlog) -> None:
        self._clock = clock
        self._backlog = backlog
        # The timer is None for an entry without a set time, see hold().
        self._entries: dict[Item, tuple[Entry, TimerHandle | None]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def put(self, entry: Entry, delay: float) -> None:
        """The next attempt of this entry is due after ``delay`` seconds."""
        timer = self._clock.call_later(delay, lambda: self._backlog.retry_due(entry))
        self._entries[entry[1]] = entry, timer

    def hold(self, entry: Entry) -> None:
        """Keep this entry without a time for its next attempt."""
        self._entries[entry[1]] = entry, None

    def __contains__(self, item: Item) -> bool:
        return item in self._entries

    def stop_timer(self, entry: Entry) -> None:
        """Keep this entry, and cancel the timer of its next attempt."""
        _, timer = self._entries[entry[1]]
        if timer is not None:
            timer.cancel()
        self.hold(entry)

    def attempt_started(self, item: Item) -> None:
        """A worker has begun the next attempt."""
        self._entries.pop(item, None)

    def remove(self, partition: TopicPartition | None = None) -> list[Entry]:
        """Remove the entries of one partition, or all; their lanes stay busy."""
        removed: list[Entry] = []
        for item, (entry, timer) in list(self._entries.items()):
            if partition is None or entry[0].partition == partition:
                if timer is not None:
                    timer.cancel()
                del self._entries[item]
                removed.append(entry)
        return removed


class ProbedPause:
    """The pause of a partition until a failed item, the ``probe``, succeeds.

    ``waiting``: other failed items, which are retried after the probe has succeeded. ``probing``:
    an attempt at the probe is due or runs. ``by_user``: the user has paused the partition as well,
    so only the user resumes it.
    """

    __slots__ = ("by_user", "probe", "probing", "reason", "waiting")

    def __init__(self, probe: Entry, reason: FailurePause, *, by_user: bool) -> None:
        self.probe = probe
        self.reason = reason
        self.waiting: list[Entry] = []
        self.probing = False
        self.by_user = by_user

    def is_probe(self, item: Item) -> bool:
        """Whether the pause ends when this item succeeds."""
        return self.probe[1] is item

    def wait(self, entry: Entry) -> None:
        """Another failed item waits for the probe to succeed."""
        self.waiting.append(entry)

    def attempt_due(self) -> None:
        """The next attempt at the probe may begin."""
        self.probing = True

    def attempt_failed(self, reason: FailurePause) -> None:
        """The attempt at the probe has failed."""
        self.reason = reason
        self.probing = False

    def pause_by_user(self) -> None:
        """The user has paused the partition."""
        self.by_user = True
