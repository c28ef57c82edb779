"""Draws runs, injects anomalies, and judges what an audit has found of them."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, NamedTuple

from unit.audit.proof.generated_runs import PARTITIONS, RunGenerator
from unit.audit.proof.injections import INJECTIONS, Expected, Found, Injection
from unit.audit.proof.journal_run import JournalRun

from asyncrevoke.audit.anomalies import Severity, status_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from asyncrevoke.audit.anomalies import Anomaly
    from asyncrevoke.journal.format.schema import Content

_MOST_TRIALS = 200
_DECIDES = (Severity.FAIL, Severity.INCONCLUSIVE)


class Instance(NamedTuple):
    """A run with an injected anomaly; without one, ``name`` is "nothing"."""

    name: str
    number: int
    before: JournalRun
    run: JournalRun
    expected: Expected

    @property
    def partitions(self) -> range:
        """Those of this run alone."""
        return range(self.number * PARTITIONS, (self.number + 1) * PARTITIONS)

    def of(self, anomalies: Iterable[Anomaly]) -> list[Anomaly]:
        """Those that are about this run."""
        return [
            anomaly
            for anomaly in anomalies
            if (anomaly.partition in self.partitions)
            or (anomaly.partition is None and set(anomaly.sessions) & self.before.sessions.keys())
        ]


def draw_instances(
    seed: int, count: int, *, chaotic: bool, content: Content | None
) -> list[Instance]:
    """``count`` runs of each injection, and as many without one."""
    chance = random.Random(f"{seed} {chaotic} {content}")
    found: list[Instance] = []
    for injection in (None, *INJECTIONS):
        if injection is not None and injection.__name__ == "changed" and content is None:
            continue
        for _ in range(count):
            found.append(_drawn(chance, len(found), injection, chaotic=chaotic, content=content))
    return found


def _drawn(
    chance: random.Random,
    number: int,
    injection: Injection | None,
    *,
    chaotic: bool,
    content: Content | None,
) -> Instance:
    for _ in range(_MOST_TRIALS):
        before = RunGenerator(chance, number, chaotic=chaotic, content=content).draw()
        run = before.copy()
        if injection is None:
            return Instance("nothing", number, before, run, Expected())
        expected = injection(run, chance)
        if expected is not None:
            return Instance(injection.__name__, number, before, run, expected)
    raise AssertionError(f"no run has a place for {injection}")


def problems(instance: Instance, anomalies: Sequence[Anomaly]) -> list[str]:
    """What an audit says that it should not, and does not say that it should."""
    own = instance.of(anomalies)
    found = offsets_of(each for each in own if each.severity is Severity.FAIL)
    expected = instance.expected
    wrong: list[str] = [f"found {candidate}" for candidate in sorted(found - expected.found)]
    wrong += [f"not found {candidate}" for candidate in sorted(expected.found - found)]
    status = status_of(list(own))
    if expected.found:
        wanted = "FAIL"
    elif expected.missing:
        named = offsets_of(own)
        unknown = _without_rows(instance) - {each[1:] for each in named if each[0] == "sought_past"}
        gaps = {each[1:] for each in named if each[0] in ("journal_gap", "not_recorded")}
        wrong += [f"not named {each}" for each in sorted(unknown - gaps)]
        wanted = "INCONCLUSIVE" if unknown or expected.inconclusive else str(status)
    else:
        wanted = "PASS"
    if status != wanted:
        wrong.append(f"{status}, not {wanted}")
    return [f"{instance.name} {instance.number}: {each}" for each in wrong]


def _without_rows(instance: Instance) -> set[tuple[int, int]]:
    """The committed records that a handler completed, and that no row says it of any more."""
    session_rows = instance.run.copy()
    for session in session_rows.sessions.values():
        session.rows = [r for n, r in enumerate(session.rows) if n not in session.missing]
    done = session_rows.done()
    return {
        (part, offset)
        for part, offset in instance.before.done()
        if (part, offset) not in done and offset < instance.run.committed[part]
    }


def offsets_of(anomalies: Iterable[Anomaly]) -> set[Found]:
    """Each record that they name."""
    return {
        (str(anomaly.kind), anomaly.partition, offset)
        for anomaly in anomalies
        if anomaly.partition is not None
        and anomaly.offset_lo is not None
        and anomaly.offset_hi is not None
        for offset in range(anomaly.offset_lo, anomaly.offset_hi + 1)
    }
