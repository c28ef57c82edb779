"""Over which connection a request is sent, and what is opened and closed for it: as a table."""

from __future__ import annotations

import pytest

from asyncrevoke.client.core.io.effects import Node
from asyncrevoke.client.runtime.net.channels import Choice, Held, Stage, choose

BROKER = Node(1, "kafka-1", 9092)
MOVED = Node(1, "kafka-2", 9092)
EARLY, RENEW_AT, ENDS_AT = 10.0, 80.0, 95.0
OPENING, OPEN, ENDED = Stage.OPENING, Stage.OPEN, Stage.ENDED


def held(stage: Stage = OPEN, *, wait: bool = False, node: Node = BROKER) -> Held:
    """A connection whose broker ends no sessions."""
    return Held(node, stage, wait)


def authenticated(successor: Stage | None = None, *, wait: bool = False) -> Held:
    """An open connection whose session ends."""
    return Held(BROKER, OPEN, wait, RENEW_AT, ENDS_AT, successor)


USE = Choice("held")
WAIT = Choice("held", waits=True)
CASES = {
    "none is there": (None, EARLY, Choice("new", opens="new")),
    "it is being opened": (held(OPENING), EARLY, WAIT),
    "it is open, and requests wait for it": (held(wait=True), EARLY, WAIT),
    "it is open": (held(), EARLY, USE),
    "it has ended": (held(ENDED), EARLY, Choice("new", opens="new", closes="held")),
    "the broker has moved": (held(node=MOVED), EARLY, Choice("new", opens="new", closes="held")),
    "the broker has moved before it was open": (
        held(OPENING, node=MOVED),
        EARLY,
        Choice("new", opens="new", closes="held"),
    ),
    "its session is young": (authenticated(), EARLY, USE),
    "its session is young, and requests wait": (authenticated(wait=True), EARLY, WAIT),
    "its session is to be renewed": (
        authenticated(),
        RENEW_AT,
        Choice("held", opens="successor"),
    ),
    "its successor is being opened": (authenticated(OPENING), RENEW_AT, WAIT),
    "its successor has failed": (
        authenticated(ENDED),
        RENEW_AT,
        Choice("held", closes="successor"),
    ),
    "its successor is open": (
        authenticated(OPEN),
        RENEW_AT,
        Choice("successor", closes="held when unused"),
    ),
    "its session has ended without a successor": (
        authenticated(),
        ENDS_AT,
        Choice("new", opens="new", closes="held when unused"),
    ),
    "its session has ended, and its successor is being opened": (
        authenticated(OPENING),
        ENDS_AT,
        Choice("successor", waits=True, closes="held when unused"),
    ),
    "its session has ended, and its successor has failed": (
        authenticated(ENDED),
        ENDS_AT,
        Choice("new", opens="new", closes="held when unused"),
    ),
    "its session has ended, and its successor is open": (
        authenticated(OPEN),
        ENDS_AT,
        Choice("successor", closes="held when unused"),
    ),
}


@pytest.mark.parametrize(("held", "now", "choice"), CASES.values(), ids=CASES)
def test_a_request_is_sent_over_this_connection(
    held: Held | None, now: float, choice: Choice
) -> None:
    assert choose(held, BROKER, now) == choice
