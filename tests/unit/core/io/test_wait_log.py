"""Log lines about what is waited for: at once, and then in proportion."""

from __future__ import annotations

from asyncrevoke.client.core.io.effects import Emit
from asyncrevoke.client.core.io.outbox import Outbox
from asyncrevoke.client.core.io.wait_log import REPEAT_AFTER, WaitLog
from asyncrevoke.client.log_events import LogEvent

WAITING = LogEvent("warning", "waiting", "seconds")
RESPONDS = LogEvent("info", "responds", "seconds")


def lines(outbox: Outbox) -> list[tuple[str, object]]:
    return [(e.event, e.fields["seconds"]) for e in outbox.take() if isinstance(e, Emit)]


def test_a_wait_is_logged_at_once_after_intervals_and_at_its_end() -> None:
    outbox = Outbox()
    log = WaitLog(outbox)
    for now in range(25):
        log.waiting(now, "broker", WAITING)
    log.over(25, "broker", RESPONDS)
    log.over(26, "broker", RESPONDS)
    assert lines(outbox) == [("waiting", 0), ("waiting", 10), ("waiting", 20), ("responds", 25)]


def test_a_short_recurring_wait_is_not_logged_each_time() -> None:
    outbox = Outbox()
    log = WaitLog(outbox)
    for now in range(40):
        log.waiting(now, "broker", WAITING)
        log.over(now + 0.5, "broker", RESPONDS)
    told = lines(outbox)
    assert [event for event, _ in told] == ["waiting", "responds"] * 4


def test_a_wait_soon_after_another_is_logged_if_it_lasts() -> None:
    outbox = Outbox()
    log = WaitLog(outbox)
    log.waiting(0, "broker", WAITING)
    log.over(1, "broker", RESPONDS)
    for now in range(2, 13):
        log.waiting(now, "broker", WAITING)
    assert lines(outbox) == [("waiting", 0), ("responds", 1), ("waiting", 8)]
    assert REPEAT_AFTER == 10


def test_waits_are_logged_by_their_own_keys() -> None:
    outbox = Outbox()
    log = WaitLog(outbox)
    log.waiting(0, "one", LogEvent("warning", "waiting for one"))
    log.waiting(0, "other", LogEvent("warning", "waiting for the other"))
    assert [event for event, _ in lines(outbox)] == ["waiting for one", "waiting for the other"]
