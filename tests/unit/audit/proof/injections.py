"""Anomalies that a test injects into the journals of a run, or into its topic.

Each injection changes the run and says what an audit must find of it. Returns None if the run has
no place for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from unit.audit.proof.journal_run import row
from unit.journal.written_journal import MS, record

from asyncrevoke.journal.format.schema import CallOutcome, RowKind

if TYPE_CHECKING:
    import random

    from unit.audit.proof.journal_run import JournalRun, Row, Session

# Kind, partition and offset.
Found: TypeAlias = tuple[str, int, int]

# A difference of clocks that audits must bear: they are compared with 50 ms.
_SKEW = 40 * MS


class Expected(NamedTuple):
    """What an audit must find: these records by these kinds, and no other failure.

    ``missing``: rows are missing, so that the records without a row that a commit covers must be
    named as not recorded, and the result is INCONCLUSIVE if there are any or if ``inconclusive``.
    """

    found: frozenset[Found] = frozenset()
    missing: bool = False
    inconclusive: bool = False


Injection: TypeAlias = Callable[["JournalRun", "random.Random"], "Expected | None"]


def _committed_alone(run: JournalRun) -> list[tuple[Session, Row]]:
    """Calls for records that one handler completed once, and that a commit of its session with a
    row covers, before any other session is assigned the partition."""
    calls = Counter(
        (row["partition"], row["offset"])
        for session in run.sessions.values()
        for row in session.rows
        if row["kind"] == RowKind.ATTEMPT
    )
    found: list[tuple[Session, Row]] = []
    for part in run.logs:
        commits = [(s, r) for s in run.sessions.values() for r in s.commits(part)]
        commits.sort(key=lambda commit: commit[1]["at_us"])
        untouched = _untouched(run, part)
        for session in run.sessions.values():
            for attempt in session.attempts(part):
                offset = attempt["offset"]
                first = next(((s, r) for s, r in commits if r["offset"] > offset), None)
                if first is None or calls[part, offset] > 1 or not untouched(offset):
                    continue
                if first[0] is session and first[1]["at_us"] >= attempt["at_us"]:
                    found.append((session, attempt))
    return found


def _untouched(run: JournalRun, part: int) -> Callable[[int], bool]:
    """Whether no seek and no completion map is about a record of this partition."""
    sought: list[tuple[int, int]] = []
    skips = False
    for session in run.sessions.values():
        assigned = 0
        for each in session.rows:
            if each.get("partition") == part:
                skips = skips or each["kind"] == RowKind.SKIPPED
                if each["kind"] == RowKind.ASSIGN:
                    assigned = each["offset"]
                if each["kind"] == RowKind.RESET:
                    sought.append((assigned, each["offset"]))

    def untouched(offset: int) -> bool:
        return not skips and not any(here <= offset or there <= offset for here, there in sought)

    return untouched


def _chosen(run: JournalRun, chance: random.Random) -> tuple[Session, Row] | None:
    places = _committed_alone(run)
    return chance.choice(places) if places else None


def _span_end(session: Session, part: int, at: int) -> int:
    """When the session gave the partition back that it owned at this time."""
    found: int = next(
        (
            r["at_us"]
            for r in session.rows
            if r["kind"] in (RowKind.RELEASED, RowKind.LOST)
            and r["partition"] == part
            and r["at_us"] >= at
        ),
        session.rows[-1]["at_us"],
    )
    return found


def lost(run: JournalRun, chance: random.Random) -> Expected | None:
    """No handler was called for a record."""
    place = _chosen(run, chance)
    if place is None:
        return None
    part, offset = place[1]["partition"], place[1]["offset"]
    for session, attempt in list(run.attempts(part, offset)):
        session.rows.remove(attempt)
    return Expected(frozenset({("lost", part, offset)}))


def repeated(run: JournalRun, chance: random.Random) -> Expected | None:
    """A record is handled again after a commit beyond it."""
    place = _chosen(run, chance)
    if place is None:
        return None
    session, attempt = place
    part, offset = attempt["partition"], attempt["offset"]
    covered = run.covered(part, offset)
    assert covered is not None
    end = _span_end(session, part, attempt["at_us"])
    if covered + 2 >= end:
        return None
    again = {**attempt, "started_us": covered + 1, "at_us": covered + 2}
    session.add(again)
    return Expected(frozenset({("duplicate_after_commit", part, offset)}))


def two_at_once(run: JournalRun, chance: random.Random) -> Expected | None:
    """Another member handles a record while its owner does."""
    long = [
        (session, attempt)
        for session, attempt in _committed_alone(run)
        if attempt["at_us"] - attempt["started_us"] > 140 * MS
    ]
    if not long:
        return None
    session, attempt = chance.choice(long)
    part: int = attempt["partition"]
    offset: int = attempt["offset"]
    begins, ends = attempt["started_us"], attempt["at_us"]
    others = [
        each
        for each in run.sessions.values()
        if each is not session
        and each.ended
        and each.rows[0]["at_us"] < begins
        and part not in {r.get("partition") for r in each.rows}
    ]
    if not others:
        return None
    other = chance.choice(others)
    commits = [r for s in run.sessions.values() for r in s.commits(part) if r["at_us"] < begins]
    position = max(commits, key=lambda r: r["at_us"], default={"offset": 0})["offset"]
    own: Row = {"member": "other", "generation": 1}
    other.add(row(RowKind.ASSIGN, begins + 5 * MS, part, position, **own))
    other.add({**attempt, "started_us": begins + 10 * MS, "at_us": ends - 10 * MS})
    other.add(row(RowKind.LOST, ends - 5 * MS, part, **own))
    return Expected(frozenset({("concurrent_duplicate", part, offset)}))


def reordered(run: JournalRun, chance: random.Random) -> Expected | None:
    """The handler of a record began before that of an earlier one of its key had ended."""
    pairs: list[tuple[Row, Row]] = []
    for session, attempt in _committed_alone(run):
        earlier = [
            each
            for each in session.attempts(attempt["partition"])
            if each["offset"] < attempt["offset"]
            and each["offset"] % 5 == attempt["offset"] % 5
            and each["at_us"] <= attempt["started_us"]
            and _span_end(session, each["partition"], each["at_us"])
            == _span_end(session, each["partition"], attempt["at_us"])
        ]
        if earlier:
            last = max(earlier, key=lambda each: each["at_us"])
            begun = max(each["offset"] for each in earlier) == last["offset"]
            if begun and last["started_us"] < last["at_us"] - 1:
                pairs.append((last, attempt))
    if not pairs:
        return None
    last, attempt = chance.choice(pairs)
    if any(
        True
        for _, r in run.attempts(attempt["partition"], last["offset"])
        if r is not last and r["kind"] == RowKind.ATTEMPT
    ):
        return None
    for session, each in run.attempts(attempt["partition"], attempt["offset"]):
        if each["kind"] == RowKind.START:
            session.rows.remove(each)
            session.add({**each, "at_us": last["at_us"] - 1})
            break
    attempt["started_us"] = last["at_us"] - 1
    return Expected(frozenset({("key_order", attempt["partition"], attempt["offset"])}))


def after_release(run: JournalRun, chance: random.Random) -> Expected | None:
    """A handler ends after its partition was released."""
    places: list[tuple[Session, Row, int]] = []
    for session, attempt in _committed_alone(run):
        end = _span_end(session, attempt["partition"], attempt["at_us"])
        is_last = attempt["offset"] == max(
            each["offset"]
            for each in session.attempts(attempt["partition"])
            if _span_end(session, attempt["partition"], each["at_us"]) == end
        )
        if (is_last and end < session.rows[-1]["at_us"]) or (is_last and session.ended):
            places.append((session, attempt, end))
    if not places:
        return None
    session, attempt, end = chance.choice(places)
    part, offset = attempt["partition"], attempt["offset"]
    if not any(r["kind"] == RowKind.RELEASED and r["at_us"] == end for r in session.rows):
        return None
    session.rows.remove(attempt)
    session.add({**attempt, "at_us": end + MS})
    return Expected(frozenset({("ownership", part, offset), ("commit_ahead", part, offset)}))


def past_undone(run: JournalRun, chance: random.Random) -> Expected | None:
    """A commit beyond records whose handlers run is accepted."""
    place = _chosen(run, chance)
    if place is None:
        return None
    session, attempt = place
    part, offset = attempt["partition"], attempt["offset"]
    at = (attempt["started_us"] + attempt["at_us"]) // 2
    generation = _generation(session, part, at)
    if generation is None:
        return None
    position = _committed_before(run, part, at)
    commit = row(
        RowKind.COMMIT, at, part, offset + 1, outcome=CallOutcome.OK, generation=generation
    )
    done = run.done()
    ahead = {
        each
        for each in range(position, offset + 1)
        if (part, each) in done and done[part, each] > at
    }
    never = {
        each
        for each in range(position, offset + 1)
        if (part, each) not in done and each not in run.logs[part].missing
    }
    later = [r for r in session.commits(part) if r["at_us"] > at]
    if never or any(r["offset"] < offset + 1 for r in later) or not later:
        return None
    session.add(commit)
    return Expected(frozenset(("commit_ahead", part, each) for each in ahead))


def _generation(session: Session, part: int, at: int) -> int | None:
    assigned = [
        r["generation"]
        for r in session.rows
        if r["kind"] == RowKind.ASSIGN and r["partition"] == part and r["at_us"] <= at
    ]
    return assigned[-1] if assigned else None


def _committed_before(run: JournalRun, part: int, at: int) -> int:
    return max(
        (r["offset"] for s in run.sessions.values() for r in s.commits(part) if r["at_us"] < at),
        default=0,
    )


def stale(run: JournalRun, chance: random.Random) -> Expected | None:
    """A commit of an older generation is accepted after one of a newer generation."""
    places: list[tuple[Session, Row, Row]] = []
    for part in run.logs:
        commits = [(s, r) for s in run.sessions.values() for r in s.commits(part)]
        commits.sort(key=lambda each: each[1]["at_us"])
        if not commits:
            continue
        (_, newest) = commits[-1]
        highest = max(r["offset"] for _, r in commits)
        if newest["offset"] != highest:
            continue
        places += [
            (session, commit, newest)
            for session, commit in commits
            if commit["generation"] < newest["generation"] and session.ended
        ]
    if not places:
        return None
    session, commit, newest = chance.choice(places)
    sent = newest["at_us"] + 60 * MS
    later = {"started_us": sent, "at_us": sent + MS, "offset": newest["offset"]}
    session.add({**commit, **later})
    return Expected(frozenset({("stale_commit", commit["partition"], newest["offset"])}))


def regression(run: JournalRun, chance: random.Random) -> Expected | None:
    """A commit that is lower than the one before it is accepted, without a seek."""
    places: list[tuple[Session, Row]] = []
    for session in run.sessions.values():
        for part in run.logs:
            commits = session.commits(part)
            for one, other in pairwise(commits):
                same = one["generation"] == other["generation"]
                highest = max(
                    r["offset"]
                    for s in run.sessions.values()
                    for r in s.commits(part)
                    if r["at_us"] <= one["at_us"]
                )
                is_free = not any(
                    r["kind"] == RowKind.RESET and r["partition"] == part
                    for s in run.sessions.values()
                    for r in s.rows
                    if r.get("partition") == part
                )
                has_room = other["at_us"] - one["at_us"] > 2 and other["offset"] >= one["offset"]
                if same and is_free and has_room and highest == one["offset"] > 3:
                    places.append((session, one))
    if not places:
        return None
    session, commit = chance.choice(places)
    lower = commit["offset"] - chance.randrange(1, 3)
    accepted = commit["at_us"]
    later = {"started_us": accepted + 1, "at_us": accepted + 2, "offset": lower}
    session.add({**commit, **later})
    part = commit["partition"]
    return Expected(
        frozenset(("commit_regression", part, each) for each in range(lower, commit["offset"]))
    )


def phantom(run: JournalRun, chance: random.Random) -> Expected | None:
    """A handler is called for an offset beyond the end of the log."""
    place = _chosen(run, chance)
    if place is None:
        return None
    session, attempt = place
    part = attempt["partition"]
    # Of the first keys of the log, which the last record may not have.
    offset = run.logs[part].hi
    if record(offset).key is None:
        return None
    end = _span_end(session, part, attempt["at_us"])
    free = max(
        (each["at_us"] for s in run.sessions.values() for each in s.attempts(part)), default=0
    )
    if free >= end:
        return None
    session.add({**attempt, "offset": offset, "started_us": free, "at_us": free + 1})
    return Expected(frozenset({("phantom", part, offset)}))


def changed(run: JournalRun, chance: random.Random) -> Expected | None:
    """A record is handled with another value than the topic has."""
    place = _chosen(run, chance)
    if place is None or run.content is None:
        return None
    session, attempt = place
    part, offset = attempt["partition"], attempt["offset"]
    if run.content == "records":
        attempt["record_hash"] += 1
        return Expected(frozenset({("content_mismatch", part, offset)}))
    batches = [
        r
        for r in session.rows
        if r["kind"] == RowKind.FETCHED
        and r["partition"] == part
        and r["offset"] <= offset
        and r["last_offset"] >= offset
    ]
    for batch in batches:
        batch["checksum"] += 1
    handled = {r["offset"] for r in session.attempts(part)}
    both = {batches[0]["offset"], batches[0]["last_offset"]} & handled
    return Expected(frozenset(("content_mismatch", part, each) for each in both))


def member_missing(run: JournalRun, chance: random.Random) -> Expected | None:
    """The journal of a member is not there."""
    if len(run.sessions) < 2:
        return None
    del run.sessions[chance.choice(sorted(run.sessions))]
    return Expected(missing=True)


def tail_cut(run: JournalRun, chance: random.Random) -> Expected | None:
    """The end of a journal is not there."""
    session = run.sessions[chance.choice(sorted(run.sessions))]
    kept = max(2, int(len(session.rows) * chance.uniform(0.3, 0.8)))
    if kept == len(session.rows):
        return None
    del session.rows[kept:]
    strict = '"strict": true' in session.rows[0]["facts"]
    return Expected(missing=True, inconclusive=not strict)


def middle_cut(run: JournalRun, chance: random.Random) -> Expected | None:
    """Rows in the middle of a journal are not there."""
    session = run.sessions[chance.choice(sorted(run.sessions))]
    if len(session.rows) < 12:
        return None
    first = chance.randrange(2, len(session.rows) - 6)
    session.missing = range(first, chance.randrange(first + 1, len(session.rows) - 1))
    session.as_parquet = True
    return Expected(missing=True, inconclusive=True)


def bit_flipped(run: JournalRun, chance: random.Random) -> Expected | None:
    """One bit of a journal is another."""
    session = run.sessions[chance.choice(sorted(run.sessions))]
    session.as_parquet = False
    session.flipped = chance.random()
    return Expected(missing=True, inconclusive=True)


def clock_skewed(run: JournalRun, chance: random.Random) -> Expected | None:
    """The clock of one machine differs by less than what audits bear: nothing is to be found."""
    session = run.sessions[chance.choice(sorted(run.sessions))]
    shift = chance.randrange(-_SKEW, _SKEW)
    for each in session.rows:
        for name in ("at_us", "started_us"):
            if each.get(name) is not None:
                each[name] += shift
    return Expected()


INJECTIONS: tuple[Injection, ...] = (
    lost,
    repeated,
    two_at_once,
    reordered,
    after_release,
    past_undone,
    stale,
    regression,
    phantom,
    changed,
    member_missing,
    tail_cut,
    middle_cut,
    bit_flipped,
    clock_skewed,
)
